"""Detectors: networks that find regions and name them."""
