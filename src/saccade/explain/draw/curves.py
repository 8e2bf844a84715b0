"""Lines that bend, taper into arrows and change colour on their way, drawn without jagged edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image, ImageDraw

from saccade.explain.draw.marks import Frame
from saccade.explain.draw.palette import rgb

Point = tuple[float, float]

FINE = 2  # lines are drawn so many times as large and then reduced
RIM = (10, 12, 14, 170)  # the dark edge that keeps a line apart from any picture


def smooth_layer(size: tuple[int, int], paint: Callable[[Brush], None]) -> Image.Image:
    """A transparent layer with what `paint` draws on it, its edges smooth."""
    layer = Image.new("RGBA", (size[0] * FINE, size[1] * FINE))
    paint(Brush(ImageDraw.Draw(layer)))
    return layer.resize(size, Image.Resampling.BOX)


class Brush:
    """Draws in the coordinates of the reduced layer."""

    def __init__(self, pen: ImageDraw.ImageDraw) -> None:
        self._pen = pen

    def stroke(
        self,
        points: Float[Array, "point 2"],
        tones: tuple[str, str],
        thickness: float,
        rim: float = 0,
    ) -> None:
        """A line through points, its colour going over from the first tone to the second; with a dark rim if asked."""
        path = points * FINE
        start, stop = np.array(rgb(tones[0])), np.array(rgb(tones[1]))
        if rim:
            self._trace(path, [RIM] * len(path), (thickness + 2 * rim) * FINE)
        ramp = [(*map(int, (start + (stop - start) * t).round()), 255) for t in np.linspace(0, 1, len(path))]
        self._trace(path, ramp, thickness * FINE)

    def arrow(self, points: Float[Array, "point 2"], tones: tuple[str, str], thickness: float, rim: float = 0) -> None:
        """A stroke that ends in a head."""
        tip, back = points[-1], points[max(0, len(points) - 4)]
        along = (tip - back) / max(float(np.hypot(*(tip - back))), 1e-9)
        across, long = np.array([-along[1], along[0]]), 2.2 * thickness + 8
        self.stroke(points[: max(2, len(points) - 2)], tones, thickness, rim)
        for grow, tone in ((2.0 * bool(rim), RIM), (0.0, (*rgb(tones[1]), 255))):
            corners = [
                tip + along * grow * 1.5,
                tip - along * (long + grow) + across * (0.62 * long + grow),
                tip - along * (long + grow) - across * (0.62 * long + grow),
            ]
            if grow or not rim or tone != RIM:
                self._pen.polygon([tuple(c * FINE) for c in corners], tone)

    def dot(self, at: Point, radius: float, fill: str, edge: str | None = None, thick: float = 3) -> None:
        x, y = at
        for r, tone in ((radius + thick, edge), (radius, fill)):
            if tone is not None:
                self._pen.ellipse(((x - r) * FINE, (y - r) * FINE, (x + r) * FINE, (y + r) * FINE), (*rgb(tone), 255))

    def _trace(self, path: Float[Array, "point 2"], tones: Sequence[tuple[int, ...]], thickness: float) -> None:
        wide = max(1, round(thickness))
        radius = (wide - 1) / 2  # of the joints, no wider than the line
        for (x, y), (u, v), tone in zip(path[:-1], path[1:], tones[1:], strict=True):
            self._pen.line((x, y, u, v), tone, wide)
            if radius > 1:
                self._pen.ellipse((u - radius, v - radius, u + radius, v + radius), tone)


def bend(start: Point, stop: Point, bulge: float = 0.18, count: int = 40) -> Float[Array, "point 2"]:
    """A curve from one point to another that bulges to its left by a part of its length (0: straight)."""
    one, other = np.array(start, dtype=np.float64), np.array(stop, dtype=np.float64)
    away = np.array([other[1] - one[1], one[0] - other[0]])
    return through(one, (one + other) / 2 + 2 * bulge * away, other, count)


def through(
    start: Float[Array, " 2"], pull: Float[Array, " 2"], stop: Float[Array, " 2"], count: int = 40
) -> Float[Array, "point 2"]:
    """A quadratic Bézier curve, drawn towards `pull` on its way."""
    t = np.linspace(0, 1, count)[:, None]
    curve: Float[Array, "point 2"] = (1 - t) ** 2 * start + 2 * t * (1 - t) * pull + t**2 * stop
    return curve


def drop(start: Point, stop: Point, count: int = 30) -> Float[Array, "point 2"]:
    """A curve that leaves its start straight down and reaches its end straight from above."""
    t = np.linspace(0, 1, count)
    ease = t * t * (3 - 2 * t)
    return np.stack([start[0] + (stop[0] - start[0]) * ease, start[1] + (stop[1] - start[1]) * t], axis=1)


def arch(left: Point, right: Point, height: float, count: int = 48) -> Float[Array, "point 2"]:
    """Half an ellipse above two points, as tall as `height`."""
    angle = np.linspace(np.pi, 0, count)
    (x, y), (u, v) = left, right
    level = np.linspace(y, v, count)
    return np.stack([(x + u) / 2 + (u - x) / 2 * np.cos(angle), level - height * np.sin(angle)], axis=1)


def middle(frame: Frame) -> Point:
    return (frame[0] + frame[2]) / 2, (frame[1] + frame[3]) / 2
