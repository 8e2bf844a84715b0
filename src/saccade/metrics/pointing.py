"""The pointing game: does a word attend to the thing it names? By regions, or by a heat map over the picture.

The cells of a grid are small beside the things in a picture, and the strongest of them alone is often one beside the
thing. So cells are read with their neighbours: w̃_i = Σ_j exp(−d_ij² / 2) w_j, with distances d counted in cells. What
lies outside the picture has no weight, so that a cell at the border has to be surer than one inside.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array


def with_neighbours(
    weights: Float[Array, "word region"], regions: Float[Array, "region 4"]
) -> Float[Array, "word region"]:
    """The weights w̃ if the regions are cells of a grid; those of a detector, whose sizes differ, stay as they are."""
    if not are_cells(regions):
        return weights
    places = regions[:, :2] / (regions[0, 2:] - regions[0, :2])
    squares = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    return np.asarray(np.clip(weights, 0, None) @ np.exp(-squares / 2))


def are_cells(regions: Float[Array, "region 4"]) -> bool:
    """Whether regions are the cells of a grid: several, all of one size, and whole numbers of it apart."""
    sides = regions[:, 2:] - regions[:, :2]
    if len(regions) < 2 or (sides <= 0).any() or np.abs(sides - sides[0]).max() > 1e-4:
        return False
    steps = (regions[:, :2] - regions[0, :2]) / sides[0]
    return bool(np.abs(steps - steps.round()).max() < 1e-2)


def pointed_at(weights: Float[Array, "phrase region"], regions: Float[Array, "region 4"]) -> Float[Array, "phrase 2"]:
    """The middle of the region at which each phrase points; cells are read with their neighbours."""
    middles = (regions[:, :2] + regions[:, 2:]) / 2
    return np.asarray(middles[with_neighbours(weights, regions).argmax(axis=1)])


def points_at(
    weights: Float[Array, " region"], regions: Float[Array, "region 4"], truth: Float[Array, "box 4"]
) -> bool:
    """Whether the middle of the region with the largest weight lies inside one of the true boxes."""
    region = regions[int(np.argmax(weights))]
    return inside((region[:2] + region[2:]) / 2, truth)


def pointing_chance(regions: Float[Array, "region 4"], truth: Float[Array, "box 4"]) -> float:
    """How often a region drawn at random would do."""
    points = (regions[:, None, :2] + regions[:, None, 2:]) / 2
    hits = ((truth[:, :2] <= points) & (truth[:, 2:] >= points)).all(axis=2).any(axis=1)
    return float(hits.mean()) if len(hits) else 0.0


def inside(point: Float[Array, " 2"], boxes: Float[Array, "box 4"]) -> bool:
    low, high = boxes[:, :2] <= point, boxes[:, 2:] >= point
    return bool((low.all(axis=1) & high.all(axis=1)).any())


def map_points_at(heat: Float[Array, "row column"], truth: Float[Array, "box 4"]) -> bool:
    """Whether the largest cell of a heat map, the first of equals, lies inside a true box, its edges included.

    Boxes are in cells.
    """
    row, column = np.unravel_index(int(np.argmax(heat)), heat.shape)
    return inside(np.array([column, row]), truth)


def attention_correctness(heat: Float[Array, "row column"], truth: Float[Array, "box 4"]) -> float:
    """The share of a heat map's mass that lies in true boxes of whole cells, from x1 and y1 to before x2 and y2.

    Where boxes overlap, it counts for each of them.
    """
    corners = np.clip(truth, 0, None).astype(np.int64).tolist()
    total = float(heat.sum())
    return sum(float(heat[y1:y2, x1:x2].sum()) for x1, y1, x2, y2 in corners) / total if total > 0 else 0.0
