"""Heat maps over the cells of a grid: the boxes that they mean.

`windows`: of all rectangles of cells the one with the most heat for its size, Σ_{i in window} h_i / area^p. Small p
wants all of the heat, large p the hottest cell. The same score ranks boxes of another origin, such as a detector's.

`peaks` (the multi-level common space's released evaluation): every local maximum of at least 0.3 of the map's largest
value, the connected cells around it that have at least 0.3 of its own, and the box around those; at most three, boxes
of nine tenths of the picture left out, and those that lie within each other taken together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from saccade.metrics.pointing import are_cells

HeatBoxes = Literal["windows", "peaks"]
AREA_POWER = 0.45  # p, chosen on photographs: between 0.4 and 0.5 accuracy hardly changes
LEARNED_POWER = 0.55  # of maps learned from boxes, which are flat inside and fall off at the edge
GIVEN_POWER = 0.7  # of such maps where one of a few given boxes is meant, the things of a picture
SAME_WINDOW = 0.5  # of windows that overlap more (IoU), the best stands for all
MOST_WINDOWS = 10  # that are ranked
CONSIDERED = 400  # best windows among which those are found
MOST_CELLS = 20  # a side, of maps whose windows are all tried
PEAK, AROUND, MOST_PEAKS, TOO_LARGE, SAME_PEAK = 0.3, 0.3, 3, 0.9, 0.6


def grid_shape(regions: Float[Array, "region 4"]) -> tuple[int, int] | None:
    """Rows and columns of regions that are all cells of one grid, row by row; None of others."""
    if not are_cells(regions):
        return None
    columns, rows = (round(float(1 / side)) for side in regions[0, 2:] - regions[0, :2])
    whole = rows * columns == len(regions) and bool((regions[-1, 2:] > 1 - 1e-3).all())
    return (rows, columns) if whole and max(rows, columns) <= MOST_CELLS else None


@lru_cache(maxsize=4)
def windows(rows: int, columns: int) -> Float[Array, "window 4"]:
    """Every rectangle of cells, in 0..1."""
    spans = [[(a, b) for a in range(n) for b in range(a + 1, n + 1)] for n in (rows, columns)]
    found = np.array([(x1, y1, x2, y2) for y1, y2 in spans[0] for x1, x2 in spans[1]], dtype=np.float32)
    return np.asarray(found / np.array([columns, rows, columns, rows], dtype=np.float32))


def covered(boxes: Float[Array, "box 4"], cells: Float[Array, "cell 4"]) -> Float[Array, "box cell"]:
    """Which share of each cell lies inside each box."""
    low = np.maximum(boxes[:, None, :2], cells[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], cells[None, :, 2:])
    sides = cells[:, 2:] - cells[:, :2]
    return np.asarray(np.clip(high - low, 0, None).prod(axis=2) / sides.prod(axis=1))


@lru_cache(maxsize=4)
def _covered_by_windows(rows: int, columns: int) -> Float[Array, "window cell"]:
    fine = windows(rows, columns)
    ys, xs = np.divmod(np.arange(rows * columns), columns)
    cells = np.stack([xs / columns, ys / rows, (xs + 1) / columns, (ys + 1) / rows], axis=1)
    parts = [covered(part, cells) for part in np.array_split(fine, 1 + len(fine) // 512)]
    return np.asarray(np.concatenate(parts).round(3))


def normalised(heat: Float[Array, "*map cell"]) -> Float[Array, "*map cell"]:
    """Every map from 0 to 1."""
    low, high = heat.min(axis=-1, keepdims=True), heat.max(axis=-1, keepdims=True)
    return np.asarray((heat - low) / np.maximum(high - low, 1e-12))


def box_scores(
    heat: Float[Array, "map cell"], shares: Float[Array, "box cell"], power: float = AREA_POWER
) -> Float[Array, "map box"]:
    """Heat inside each box over its area to the power p; `shares` are those of `covered`."""
    area = np.maximum(shares.sum(axis=1), 1e-6)
    return np.asarray(normalised(heat) @ shares.T / area**power)


def ranked_windows(
    heat: Float[Array, "map cell"], rows: int, columns: int, power: float = AREA_POWER
) -> list[Float[Array, "window 4"]]:
    """Of each map the best windows, best first."""
    every, shares = windows(rows, columns), _covered_by_windows(rows, columns)
    found = []
    for scores in box_scores(heat, shares, power):
        top = np.argpartition(-scores, min(CONSIDERED, len(scores) - 1))[:CONSIDERED]
        found.append(apart(every[top[np.argsort(-scores[top], kind="stable")]]))
    return found


def apart(boxes: Float[Array, "box 4"]) -> Float[Array, "kept 4"]:
    """The first boxes of a ranking that do not overlap an earlier one much."""
    kept: list[int] = []
    free = np.ones(len(boxes), dtype=bool)
    while free.any() and len(kept) < MOST_WINDOWS:
        kept.append(int(free.argmax()))
        free &= overlaps(boxes, boxes[kept[-1]]) <= SAME_WINDOW
        free[kept[-1]] = False
    return boxes[kept]


def overlaps(boxes: Float[Array, "box 4"], one: Float[Array, " 4"]) -> Float[Array, " box"]:
    """Intersection over union of each with one box."""
    shared = np.clip(np.minimum(boxes[:, 2:], one[2:]) - np.maximum(boxes[:, :2], one[:2]), 0, None).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + (one[2:] - one[:2]).prod()
    return np.asarray(shared / np.maximum(areas - shared, 1e-12))


def peak_boxes(heat: Float[Array, " cell"], rows: int, columns: int) -> Float[Array, "box 4"]:
    """The boxes around the peaks of one map, the highest first."""
    grid = normalised(heat).reshape(rows, columns)
    padded = np.pad(grid, 1, constant_values=-1.0)
    around = [padded[1 + y : 1 + y + rows, 1 + x : 1 + x + columns] for y in (-1, 0, 1) for x in (-1, 0, 1) if x or y]
    is_peak = (grid >= np.max(around, axis=0)) & (grid >= PEAK)
    peaks = sorted(zip(*np.nonzero(is_peak), strict=True), key=lambda place: -grid[place])
    boxes: list[Array] = []
    for place in peaks:
        ys, xs = np.nonzero(_connected(grid >= AROUND * grid[place], place))
        box = np.array([xs.min() / columns, ys.min() / rows, (xs.max() + 1) / columns, (ys.max() + 1) / rows])
        if (box[2:] - box[:2]).prod() < TOO_LARGE and len(boxes) < MOST_PEAKS:
            _add(boxes, box)
    return np.array(boxes or [np.array([0.0, 0.0, 1.0, 1.0])], dtype=np.float32)


def _connected(inside: Array, place: tuple[int, int]) -> Array:
    """The part of a mask that hangs together with one of its cells, side by side."""
    part = np.zeros_like(inside)
    part[place] = True
    while True:
        grown = np.pad(part, 1)
        grown = inside & (grown[1:-1, 1:-1] | grown[:-2, 1:-1] | grown[2:, 1:-1] | grown[1:-1, :-2] | grown[1:-1, 2:])
        if (grown == part).all():
            return part
        part = grown


def _add(boxes: list[Array], box: Float[Array, " 4"]) -> None:
    """A further box, joined with the first of which it covers most, or which covers most of it."""
    for n, other in enumerate(boxes):
        low, high = np.maximum(box[:2], other[:2]), np.minimum(box[2:], other[2:])
        smaller = min((one[2:] - one[:2]).prod() for one in (box, other))
        if np.clip(high - low, 0, None).prod() > SAME_PEAK * smaller:
            boxes[n] = np.concatenate([np.minimum(box[:2], other[:2]), np.maximum(box[2:], other[2:])])
            return
    boxes.append(box)
