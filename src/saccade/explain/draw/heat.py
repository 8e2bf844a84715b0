"""Where a word looks, as light: region weights spread softly over their boxes, and the colours that show them."""

from __future__ import annotations

from functools import cache

import matplotlib
import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array

SOFTNESS = 0.3  # the blurred rim of a box, as a part of the box's side: enough to read as light, not as a tile
DARKNESS = 0.76  # how much of the picture the colour map hides where nothing looks
SHADE = 0.04  # … and where everything looks: the brightest place shows the picture's own colours


def spread(
    weights: Float[Array, " region"], boxes: Float[Array, "region 4"], size: tuple[int, int]
) -> Float[Array, "height width"]:
    """Σᵣ wᵣ · boxᵣ on a grid of `size` = (height, width), scaled so that the brightest point is 1.

    A box with soft edges is the outer product of two one-dimensional profiles, so all regions together are one matrix
    product. Overlapping boxes add; weights below zero give no light; all zero stays dark.
    """
    height, width = size
    weights = np.clip(np.asarray(weights, dtype=np.float64), 0.0, None)
    boxes = np.asarray(boxes, dtype=np.float64)
    across = _profile(boxes[:, 0], boxes[:, 2], width)  # [region, width]
    down = _profile(boxes[:, 1], boxes[:, 3], height)  # [region, height]
    light: Float[Array, "height width"] = (down * weights[:, None]).T @ across
    peak = float(light.max(initial=0.0))
    return light / peak if peak > 0 else light


def _profile(start: Float[Array, " region"], stop: Float[Array, " region"], count: int) -> Float[Array, "region count"]:
    """1 inside start..stop, 0 outside, with a smooth rim centred on each edge (so the area stays the box's)."""
    pixel = 1.0 / count
    middle, half = (start + stop) / 2, np.maximum(stop - start, pixel) / 2  # a box thinner than a pixel still shows
    rim = np.maximum(SOFTNESS * 2 * half, pixel)[:, None]
    at = (np.arange(count) + 0.5) * pixel
    rise = np.clip((at - (middle - half)[:, None]) / rim + 0.5, 0, 1)
    fall = np.clip(((middle + half)[:, None] - at) / rim + 0.5, 0, 1)
    smooth: Float[Array, "region count"] = (rise * rise * (3 - 2 * rise)) * (fall * fall * (3 - 2 * fall))
    return smooth


@cache
def colour_table() -> tuple[UInt8[Array, "256 3"], UInt8[Array, " 256"]]:
    """For each heat 0..255: the colour laid over the picture, and how opaque it lies there.

    The colour map is inferno (perceptually uniform, safe for colour-blind readers). Its dark end veils what the word
    does not look at, its bright end glows around what it does; at full heat it gives way to the picture itself, because
    a reader who asks "did *red* find the red one?" must see the true colours there.
    """
    level = np.linspace(0, 1, 256)
    colours = (matplotlib.colormaps["inferno"](0.04 + 0.82 * level)[:, :3] * 255).round().astype(np.uint8)
    opacity = SHADE + (DARKNESS - SHADE) * (1 - level) ** 1.2
    return colours, (opacity * 255).round().astype(np.uint8)


def illuminate(
    picture: UInt8[Array, "height width 3"], heat: Float[Array, "height width"]
) -> UInt8[Array, "height width 3"]:
    """The picture, dark except where the heat is."""
    colours, opacity = colour_table()
    level = (np.clip(heat, 0, 1) * 255).round().astype(np.uint8)
    alpha = opacity[level][..., None].astype(np.float32) / 255
    mixed: UInt8[Array, "height width 3"] = (
        (picture * (1 - alpha) + colours[level] * alpha).round().clip(0, 255).astype(np.uint8)
    )
    return mixed
