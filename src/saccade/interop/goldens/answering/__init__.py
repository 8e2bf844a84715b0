"""Goldens of answers to questions about pictures: the models that give them, and how they are scored."""
