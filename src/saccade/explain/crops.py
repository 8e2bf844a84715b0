"""Regions cut out of their picture."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image

SLIM, WIDE = 0.6, 1.7  # a cut is no slimmer and no wider than this: it shows more of its surroundings instead
LEAST = 0.06  # of the picture's shorter side: a smaller cut would be a blur


def cut(source: Image.Image, box: Float[Array, " 4"], height: int) -> Image.Image:
    """What a 0..1 box shows, `height` pixels high and never distorted."""
    left, top, right, bottom = window(source.size, box)
    wide = max(8, round(height * (right - left) / (bottom - top)))
    return source.resize((wide, height), Image.Resampling.LANCZOS, (left, top, right, bottom))


def window(size: tuple[int, int], box: Float[Array, " 4"]) -> tuple[float, float, float, float]:
    """The part of a picture to cut out for a box: the box, made larger where it is too small or too slim."""
    corners = np.clip(np.asarray(box, dtype=np.float64), 0, 1) * (*size, *size)
    middle = (corners[:2] + corners[2:]) / 2
    wide, high = np.maximum(corners[2:] - corners[:2], LEAST * min(size))
    wide, high = min(max(wide, SLIM * high), size[0]), min(max(high, wide / WIDE), size[1])
    left = min(max(middle[0] - wide / 2, 0.0), size[0] - wide)
    top = min(max(middle[1] - high / 2, 0.0), size[1] - high)
    return left, top, left + wide, top + high
