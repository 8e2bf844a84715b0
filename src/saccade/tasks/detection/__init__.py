"""Detection: find the things of a picture and name them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvalOptions:
    """Of detectors: recall of the true boxes, names at true boxes, mean average precision."""
