# mypy: disable-error-code="no-any-return"
"""Clay: a window of pixels in which one thing is modelled, part over part, into colour and surface direction.

Only + - × ÷ √ min max are used on pixels: these are exact in IEEE arithmetic, so every machine draws the same picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from saccade.world.catalogue import Point

Field = np.ndarray  # float32 [row, column]
Ink = tuple[float, float, float]

# Colours that are not the thing's own (linear light): eyes, windows, trunks.
DARK: Ink = (0.02, 0.02, 0.03)
WHITE: Ink = (0.85, 0.85, 0.83)
BROWN: Ink = (0.17, 0.08, 0.03)
CREAM: Ink = (0.78, 0.66, 0.46)
BEAK: Ink = (0.9, 0.34, 0.03)
GLOW: Ink = (1.0, 0.82, 0.36)
SKY: Ink = (0.32, 0.5, 0.66)
STEEL: Ink = (0.3, 0.32, 0.36)

Normal = tuple[Field | float, Field | float, Field | float]


class Clay:
    """x forward and y up in units of the thing's height, from the middle of its foot."""

    def __init__(self, x: Field, y: Field, pixel: float) -> None:
        self.x, self.y, self.pixel = x, y, pixel
        self.cover, self.nx, self.ny = (np.zeros(x.shape, np.float32) for _ in range(3))
        self.nz: Field = np.ones(x.shape, np.float32)
        self.tint: Field = np.ones(x.shape, np.float32)  # brightness of the own colour
        self.inked: Field = np.zeros(x.shape, np.float32)  # share that is not of the own colour
        self.ink: Field | None = None  # float32 [3, row, column]

    # Shapes, as signed distance fields: for every pixel, how far it is from the edge (negative inside)

    def circle(self, cx: float, cy: float, radius: float) -> Field:
        return length(self.x - cx, self.y - cy) - radius

    def ellipse(self, cx: float, cy: float, rx: float, ry: float) -> Field:
        """Near the true distance, exact on the edge."""
        px, py = (self.x - cx) / rx, (self.y - cy) / ry
        k = np.sqrt(px * px + py * py)
        slope = np.sqrt((px / rx) * (px / rx) + (py / ry) * (py / ry))
        return k * (k - 1.0) / np.maximum(slope, 1e-4)

    def box(self, cx: float, cy: float, rx: float, ry: float, round_: float = 0.0) -> Field:
        """A rectangle of half-sides rx, ry, its corners rounded."""
        qx, qy = np.abs(self.x - cx) - (rx - round_), np.abs(self.y - cy) - (ry - round_)
        outside = length(np.maximum(qx, 0.0), np.maximum(qy, 0.0))
        return outside + np.minimum(np.maximum(qx, qy), 0.0) - round_

    def capsule(self, a: Point, b: Point, ra: float, rb: float | None = None) -> Field:
        """A limb from a to b, as thick as ra at a and rb at b."""
        bx, by = b[0] - a[0], b[1] - a[1]
        px, py = self.x - a[0], self.y - a[1]
        along = clamp((px * bx + py * by) / (bx * bx + by * by), 0.0, 1.0)
        distance = length(px - along * bx, py - along * by)
        return distance - ra if rb is None else distance - (ra + (rb - ra) * along)

    def polygon(self, corners: Sequence[Point]) -> Field:
        """A simple polygon, by its corners in order."""
        nearest, inside = np.full_like(self.x, np.inf), np.zeros(self.x.shape, bool)
        before = corners[-1]
        for corner in corners:
            ex, ey = before[0] - corner[0], before[1] - corner[1]
            wx, wy = self.x - corner[0], self.y - corner[1]
            along = clamp((wx * ex + wy * ey) / (ex * ex + ey * ey), 0.0, 1.0)
            dx, dy = wx - ex * along, wy - ey * along
            nearest = np.minimum(nearest, dx * dx + dy * dy)
            # The edge crosses the pixel's row to its right or left: each crossing turns in to out.
            if ey != 0.0:
                inside ^= ((self.y >= corner[1]) != (self.y >= before[1])) & (wx < wy * (ex / ey))
            before = corner
        distance = np.sqrt(nearest)
        return np.where(inside, -distance, distance)

    def ring(self, cx: float, cy: float, radius: float, thick: float) -> Field:
        return np.abs(length(self.x - cx, self.y - cy) - radius) - thick

    # Modelling

    def add(
        self,
        shape: Field,
        bulge: float = 0.1,
        tint: float = 1.0,
        ink: Ink | None = None,
        normal: Normal | None = None,
        faint: float = 1.0,
    ) -> None:
        """Lay a part over what is there. It swells from its edge over a width of `bulge`, unless `normal` is given."""
        alpha = clamp(0.5 - shape / self.pixel, 0.0, 1.0)
        if faint != 1.0:
            alpha = alpha * faint
        keep = 1.0 - alpha
        nx, ny, nz = self._swell(shape, bulge) if normal is None else normal
        self.nx = self.nx * keep + nx * alpha
        self.ny = self.ny * keep + ny * alpha
        self.nz = self.nz * keep + nz * alpha
        self.tint = self.tint * keep + tint * alpha
        self.inked = self.inked * keep
        if ink is not None:
            self.inked = self.inked + alpha
            tone = np.asarray(ink, np.float32)[:, None, None]
            if self.ink is None:
                self.ink = np.empty((3, *shape.shape), np.float32)
                self.ink[:] = tone
            else:
                self.ink = self.ink * keep + tone * alpha
        self.cover = self.cover * keep + alpha

    def _swell(self, shape: Field, bulge: float) -> Normal:
        """A rounded cross-section: at the edge the surface faces outward, `bulge` inside it faces the viewer."""
        edge = clamp(1.0 + shape / bulge, 0.0, 1.0)
        gx, gy = np.zeros_like(shape), np.zeros_like(shape)
        scale = 0.5 / self.pixel
        gx[:, 1:-1] = (shape[:, 2:] - shape[:, :-2]) * scale
        gy[1:-1] = (shape[:-2] - shape[2:]) * scale
        return gx * edge, gy * edge, np.sqrt(np.maximum(1.0 - edge * edge, 0.0))


def clamp(field: Field, low: float, high: float) -> Field:
    return np.minimum(np.maximum(field, low), high)  # np.clip takes longer to begin than to do


def length(x: Field, y: Field) -> Field:
    return np.sqrt(x * x + y * y)


def union(*fields: Field) -> Field:
    return reduce(np.minimum, fields)


def melt(a: Field, b: Field, soft: float) -> Field:
    """Union with the seam smoothed over a width of `soft`."""
    h = np.maximum(soft - np.abs(a - b), 0.0) / soft
    return np.minimum(a, b) - h * h * (soft * 0.25)
