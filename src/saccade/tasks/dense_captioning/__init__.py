"""Dense captioning: find the regions of a picture that are worth a phrase, and say one of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvalOptions:
    """Of dense captioners: mean average precision, of boxes with phrases and of boxes alone."""
