# mypy: disable-error-code="no-any-return"
"""Signed distance fields: for every pixel, how far it is from a shape's edge (negative inside).

Only + - × ÷ √ min max are used on pixels: these are exact in IEEE arithmetic, so every machine draws the same picture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saccade.world.catalogue import Point

Field = np.ndarray  # float32 [row, column]


def clamp(field: Field, low: float, high: float) -> Field:
    return np.minimum(np.maximum(field, low), high)  # np.clip takes longer to begin than to do


def length(x: Field, y: Field) -> Field:
    return np.sqrt(x * x + y * y)


def circle(x: Field, y: Field, cx: float, cy: float, radius: float) -> Field:
    return length(x - cx, y - cy) - radius


def ellipse(x: Field, y: Field, cx: float, cy: float, rx: float, ry: float) -> Field:
    """Near the true distance, exact on the edge."""
    px, py = (x - cx) / rx, (y - cy) / ry
    k = np.sqrt(px * px + py * py)
    slope = np.sqrt((px / rx) * (px / rx) + (py / ry) * (py / ry))
    return k * (k - 1.0) / np.maximum(slope, 1e-4)


def box(x: Field, y: Field, cx: float, cy: float, rx: float, ry: float, round_: float = 0.0) -> Field:
    """A rectangle of half-sides rx, ry, its corners rounded."""
    qx, qy = np.abs(x - cx) - (rx - round_), np.abs(y - cy) - (ry - round_)
    outside = length(np.maximum(qx, 0.0), np.maximum(qy, 0.0))
    return outside + np.minimum(np.maximum(qx, qy), 0.0) - round_


def capsule(x: Field, y: Field, a: Point, b: Point, ra: float, rb: float | None = None) -> Field:
    """A limb from a to b, as thick as ra at a and rb at b."""
    bx, by = b[0] - a[0], b[1] - a[1]
    px, py = x - a[0], y - a[1]
    along = clamp((px * bx + py * by) / (bx * bx + by * by), 0.0, 1.0)
    distance = length(px - along * bx, py - along * by)
    return distance - ra if rb is None else distance - (ra + (rb - ra) * along)


def polygon(x: Field, y: Field, corners: Sequence[Point]) -> Field:
    """A simple polygon, by its corners in order."""
    nearest: Field | None = None
    inside = np.zeros(x.shape, bool)
    before = corners[-1]
    for corner in corners:
        ex, ey = before[0] - corner[0], before[1] - corner[1]
        wx, wy = x - corner[0], y - corner[1]
        along = clamp((wx * ex + wy * ey) / (ex * ex + ey * ey), 0.0, 1.0)
        dx, dy = wx - ex * along, wy - ey * along
        square = dx * dx + dy * dy
        nearest = square if nearest is None else np.minimum(nearest, square)
        # The edge crosses the pixel's row to its right or left: each crossing turns in to out.
        if ey != 0.0:
            inside ^= ((y >= corner[1]) != (y >= before[1])) & (wx < wy * (ex / ey))
        before = corner
    assert nearest is not None
    distance = np.sqrt(nearest)
    return np.where(inside, -distance, distance)


def ring(x: Field, y: Field, cx: float, cy: float, radius: float, thick: float) -> Field:
    return np.abs(length(x - cx, y - cy) - radius) - thick


def union(*fields: Field) -> Field:
    result = fields[0]
    for other in fields[1:]:
        result = np.minimum(result, other)
    return result


def melt(a: Field, b: Field, soft: float) -> Field:
    """Union with the seam smoothed over a width of `soft`."""
    h = np.maximum(soft - np.abs(a - b), 0.0) / soft
    return np.minimum(a, b) - h * h * (soft * 0.25)


def cut(a: Field, b: Field) -> Field:
    """a without b."""
    return np.maximum(a, -b)


def both(a: Field, b: Field) -> Field:
    return np.maximum(a, b)
