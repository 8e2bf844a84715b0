"""Image–text matching: which pictures belong to which sentences, by a score for every pair."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of matchers: Recall@1, 5, 10 from pictures to texts and from texts to pictures, beside chance. --folds, --quick,
    --ensemble, --raw and --weights are for them; --raw and --weights, ways of averaging, imply --ensemble.
    """

    folds: int = 1
    ensemble: bool = False
    raw: bool = False
    weights: str | None = None
    quick: bool = False
