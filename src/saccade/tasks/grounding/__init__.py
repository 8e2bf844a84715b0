"""Phrase grounding: which region of a picture each phrase of a sentence means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of grounders, and of matchers with --task grounding: accuracy of a phrase's best box (right if it overlaps a true
    box by half, IoU 0.5; merged: one box around all that a phrase has), how often its strongest place lies in a true
    box (pointing), recall of its best 5 and 10 boxes, and how often any candidate would have been right. Beside them a
    box in the middle, the largest and one at random.
    """

    heat_boxes: Literal["windows", "peaks"] = "windows"
    proposals: str | None = None
