"""What a model is worth on one split, whatever its task: figures, and what every picture adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

Arrays = Mapping[str, np.ndarray]  # what a run keeps of a split


@dataclass(frozen=True, eq=False)
class Scores:
    """A figure that is a sum over pictures has its parts in `by_picture`; one of the split as a whole has none."""

    figures: Mapping[str, float]  # by metric, as tables print them
    by_picture: Mapping[str, Float[np.ndarray, " image"]]  # of some metrics: adds up to the figure
    counts: Mapping[str, int]  # pictures, texts
    chance: Mapping[str, float] = field(default_factory=dict)

    def with_figure(self, metric: str, value: float) -> Scores:
        """A figure that nobody was trained for, on the same pictures; all of them add alike."""
        parts = {}
        if metric in self.by_picture:
            count = len(self.by_picture[metric])
            parts[metric] = np.full(count, value / max(count, 1))
        return Scores({metric: value}, parts, self.counts, self.chance)


def mean_parts(each: Float[np.ndarray, " image"], factor: float = 100.0) -> Float[np.ndarray, " image"]:
    """What every picture adds to the mean of `each`, given times 100; a picture without a value (nan) adds nothing."""
    known = np.isfinite(each)
    return np.where(known, each, 0.0) * factor / max(int(known.sum()), 1)
