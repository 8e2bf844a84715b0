"""Things of the house: mug, lamp, table, basket, hat, key."""

from __future__ import annotations

import numpy as np

from saccade.world.render import sdf
from saccade.world.render.clay import DARK, GLOW, Clay
from saccade.world.render.solids import turned


def mug(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.ring(x, y, 0.3, 0.47, 0.2, 0.06), bulge=0.06, tint=0.9)
    body = sdf.union(sdf.box(x, y, -0.13, 0.48, 0.42, 0.4), sdf.ellipse(x, y, -0.13, 0.08, 0.42, 0.08))
    clay.add(body, normal=turned((x + 0.13) / 0.42))
    clay.add(sdf.ellipse(x, y, -0.13, 0.88, 0.42, 0.115), normal=(0.0, 0.8, 0.6), tint=1.1)
    clay.add(sdf.ellipse(x, y, -0.13, 0.88, 0.35, 0.08), tint=0.25, normal=(0.0, -0.2, 0.9))


def lamp(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.ellipse(x, y, 0, 0.06, 0.24, 0.06), bulge=0.05, tint=0.8)
    clay.add(sdf.capsule(x, y, (0, 0.06), (0, 0.6), 0.035), bulge=0.035, tint=0.8)
    clay.add(sdf.ellipse(x, y, 0, 0.5, 0.33, 0.07), ink=GLOW, normal=(0.0, 0.7, 0.7))
    shade = sdf.polygon(x, y, [(-0.35, 0.5), (0.35, 0.5), (0.19, 0.98), (-0.19, 0.98)])
    wide = 0.35 - 0.333 * (y - 0.5)
    clay.add(shade, normal=turned(x / np.maximum(wide, 0.1), 0.25))


def table(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    for leg in (-0.5, 0.62):
        clay.add(sdf.box(x, y, leg, 0.47, 0.045, 0.36), bulge=0.05, tint=0.6)
    for leg in (-0.7, 0.42):
        clay.add(sdf.box(x, y, leg, 0.4, 0.055, 0.4), bulge=0.06, tint=0.9)
    top = sdf.polygon(x, y, [(-0.79, 0.84), (0.52, 0.84), (0.79, 0.99), (-0.56, 0.99)])
    clay.add(top, normal=(0.0, 0.95, 0.4))
    clay.add(sdf.polygon(x, y, [(0.52, 0.74), (0.52, 0.84), (0.79, 0.99), (0.79, 0.89)]), normal=(0.9, 0.0, 0.4))
    clay.add(sdf.box(x, y, -0.135, 0.79, 0.655, 0.05), normal=(0.0, 0.1, 0.95))


def basket_back(clay: Clay) -> None:
    """The inner wall, painted before what lies in the basket."""
    x, y = clay.x, clay.y
    hole = sdf.ellipse(x, y, 0, 0.76, 0.68, 0.2)
    clay.add(hole, tint=0.32, normal=(0.0, 0.2, 0.9))
    clay.add(sdf.both(np.abs(hole + 0.03) - 0.04, 0.74 - y), bulge=0.045, tint=0.8)


def basket(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    body = sdf.union(
        sdf.polygon(x, y, [(-0.52, 0.1), (0.52, 0.1), (0.68, 0.74), (-0.68, 0.74)]),
        sdf.ellipse(x, y, 0, 0.12, 0.52, 0.12),
    )
    body = sdf.cut(body, sdf.ellipse(x, y, 0, 0.76, 0.68, 0.19))  # the near rim hangs below the far one
    wide = 0.5 + 0.24 * y
    clay.add(body, normal=turned(x / wide, 0.1))
    # Wickerwork: bands over and under upright rods.
    row = np.floor(y * 8.0)
    shift = (row - 2.0 * np.floor(row * 0.5)) * 0.5
    cell = x / wide * 5.0 + shift
    cell = np.abs(cell - np.floor(cell) - 0.5)
    band = np.abs(y * 8.0 - row - 0.5)
    woven = np.where((cell > 0.36) | (band > 0.4), 0.62, 1.05).astype(np.float32)
    clay.tint = np.where(clay.cover > 0.0, clay.tint * woven, clay.tint)
    rim = np.abs(sdf.ellipse(x, y, 0, 0.76, 0.66, 0.19)) - 0.04
    rim = sdf.both(rim, y - 0.76)
    clay.add(rim, bulge=0.045, tint=1.05)


def hat(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.ellipse(x, y, 0, 0.17, 0.83, 0.17), bulge=0.12, tint=0.9)
    crown = sdf.union(
        sdf.polygon(x, y, [(-0.44, 0.2), (0.44, 0.2), (0.38, 0.86), (-0.38, 0.86)]),
        sdf.ellipse(x, y, 0, 0.86, 0.38, 0.12),
        sdf.ellipse(x, y, 0, 0.2, 0.44, 0.1),
    )
    clay.add(crown, normal=turned(x / 0.44, 0.2))
    band = sdf.both(crown, np.abs(y - 0.3 - 0.15 * x * x) - 0.09)
    clay.add(band, ink=DARK, normal=turned(x / 0.44, 0.2))
    clay.add(sdf.ellipse(x, y, 0, 0.86, 0.37, 0.11), normal=(0.0, 0.9, 0.5))


def key(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    teeth = sdf.union(sdf.box(x, y, 0.12, 0.07, 0.12, 0.05), sdf.box(x, y, 0.1, 0.23, 0.1, 0.045))
    shape = sdf.union(sdf.ring(x, y, 0, 0.78, 0.155, 0.07), sdf.box(x, y, 0, 0.3, 0.065, 0.3, 0.03), teeth)
    clay.add(shape, bulge=0.06)
    clay.add(sdf.box(x, y, 0, 0.55, 0.11, 0.035, 0.03), bulge=0.04)
