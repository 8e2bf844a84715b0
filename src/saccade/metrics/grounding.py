"""Phrase grounding: the place of the first right region among the regions of a picture, by score."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

NOWHERE = np.iinfo(np.int32).max  # the place of a phrase for which no region is right
CUTOFFS = (5, 10)


def first_right(scores: Float[Array, "phrase region"], right: Bool[Array, "phrase region"]) -> Int[Array, " phrase"]:
    """0: the best region is right. Of regions with the same score, the first comes first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(right, order, axis=1)
    return np.where(ranked.any(axis=1), ranked.argmax(axis=1) if ranked.shape[1] else 0, NOWHERE)


def grounding_report(places: Int[Array, " phrase"]) -> dict[str, float]:
    """In per cent: how often the best region is right, one of the best 5 or 10, and any at all."""
    shares = {"accuracy": places < 1, **{f"recall_{k}": places < k for k in CUTOFFS}, "upper_bound": places < NOWHERE}
    return {name: 100 * float(np.mean(hits)) if len(hits) else 0.0 for name, hits in shares.items()}
