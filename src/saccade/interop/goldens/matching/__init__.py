"""Goldens of matchers, which score pictures or videos against sentences."""
