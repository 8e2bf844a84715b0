"""What `saccade eval` may be asked of dense captioners."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvalOptions:
    """Of dense captioners: mean average precision, of boxes with phrases and of boxes alone."""
