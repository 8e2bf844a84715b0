"""Phrase grounding: which region of a picture each phrase of a sentence means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvalOptions:
    """Of grounders: accuracy of a phrase's best region, recall of its best 5 and 10, and how often any region would
    have been right; a region is right if it overlaps a true box by half (IoU 0.5).
    """
