"""Goldens of where words point in a picture: phrases of sentences, expressions and dialogs."""
