"""The pointing game: does a word attend to the thing it names?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array


def points_at(
    weights: Float[Array, " region"], regions: Float[Array, "region 4"], truth: Float[Array, "box 4"]
) -> bool:
    """Whether the middle of the region with the largest weight lies inside one of the true boxes."""
    region = regions[int(np.argmax(weights))]
    return inside((region[:2] + region[2:]) / 2, truth)


def pointing_chance(regions: Float[Array, "region 4"], truth: Float[Array, "box 4"]) -> float:
    """How often a region drawn at random would do."""
    points = (regions[:, :2] + regions[:, 2:]) / 2
    return sum(inside(point, truth) for point in points) / max(1, len(points))


def inside(point: Float[Array, " 2"], boxes: Float[Array, "box 4"]) -> bool:
    low, high = boxes[:, :2] <= point, boxes[:, 2:] >= point
    return bool((low.all(axis=1) & high.all(axis=1)).any())
