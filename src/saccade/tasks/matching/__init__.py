"""Image–text matching: which pictures belong to which sentences, by a score for every pair."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of matchers: Recall@1, 5, 10 from pictures to texts and from texts to pictures, beside chance. --folds, --quick,
    --ensemble, --raw and --weights are for them; --raw and --weights, ways of averaging, imply --ensemble. With
    --first a cross-encoder (interbert, pixelbert) puts the best of each query by another matcher in its own order.
    """

    folds: int = 1
    ensemble: bool = False
    raw: bool = False
    weights: str | None = None
    quick: bool = False
    first: str | None = None
    rerank: str = "32"
    blend: str = "0"
