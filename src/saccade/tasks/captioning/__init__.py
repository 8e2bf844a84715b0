"""Captioning: say what is in a picture, word by word."""

from saccade.tasks.captioning.options import EvalOptions

__all__ = ["EvalOptions"]
