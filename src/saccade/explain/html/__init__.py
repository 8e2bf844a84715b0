"""Explanations as pages: one file, no outside resources."""
