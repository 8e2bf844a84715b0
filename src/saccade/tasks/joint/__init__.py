"""Several tasks learned by one model in turns: each keeps its own data, loss and measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvalOptions:
    """Of models trained on several tasks at once: every figure of each of their tasks."""
