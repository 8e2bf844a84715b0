"""Captioning: say what is in a picture, word by word."""
