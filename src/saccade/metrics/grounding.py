"""Phrase grounding: how often the box of a phrase is right, one of its best few, and whether it points at the thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

CUTOFFS = (5, 10)
Hits = Mapping[str, Float[Array, " phrase"]]  # by figure, of every phrase: 1, 0, or how likely at random


def box_hits(right: Bool[Array, " ranked"]) -> dict[str, float]:
    """Of one phrase: whether its best box is right, and one of its best 5 or 10."""
    return {"accuracy": float(right[:1].any()), **{f"recall_{k}": float(right[:k].any()) for k in CUTOFFS}}


def grounding_report(hits: Hits, kinds: Sequence[str] = ()) -> dict[str, float]:
    """Every figure in per cent; accuracy and pointing of each kind of phrase too, the most frequent first."""
    found = {name: 100 * float(np.mean(each)) if len(each) else 0.0 for name, each in hits.items()}
    named = np.array(kinds)
    counts = {kind: int((named == kind).sum()) for kind in dict.fromkeys(kinds) if kind}
    for kind in sorted(counts, key=lambda kind: -counts[kind]) if len(counts) > 1 else ():
        for name in ("accuracy", "pointing"):
            if name in hits:
                found[f"{name}_{kind}"] = 100 * float(np.mean(hits[name][named == kind]))
    return found
