"""Visual entailment: whether a picture entails a sentence, contradicts it, or leaves it open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of entailers: how many sentences they label rightly, in per cent, of all and of each label, beside the most
    frequent label; a run with shown=hypothesis is the floor that seeing must beat.
    """
