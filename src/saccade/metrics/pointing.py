"""The pointing game: does a word look at the thing it names?"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def points_at(
    weights: Float[Tensor, " region"], regions: Float[Tensor, "region 4"], truth: Float[Tensor, "box 4"]
) -> bool:
    """Whether the middle of the region with the largest weight lies inside one of the true boxes."""
    return inside(middles(regions)[int(weights.argmax())], truth)


def pointing_chance(regions: Float[Tensor, "region 4"], truth: Float[Tensor, "box 4"]) -> float:
    """How often a region drawn at random would do."""
    points = middles(regions)
    return sum(inside(point, truth) for point in points) / max(1, len(points))


def middles(boxes: Float[Tensor, "region 4"]) -> Float[Tensor, "region 2"]:
    return (boxes[:, :2] + boxes[:, 2:]) / 2


def inside(point: Float[Tensor, " 2"], boxes: Float[Tensor, "box 4"]) -> bool:
    low, high = boxes[:, :2] <= point, boxes[:, 2:] >= point
    return bool(torch.any(low.all(dim=1) & high.all(dim=1)))
