"""Things of the outdoors: mushroom, tree, house, car, boat, fish."""

from __future__ import annotations

import numpy as np

from saccade.world.render import sdf
from saccade.world.render.clay import BROWN, CREAM, DARK, GLOW, SKY, STEEL, WHITE, Clay
from saccade.world.render.solids import turned


def mushroom(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    stem = sdf.capsule(x, y, (0, 0.16), (0, 0.5), 0.19, 0.14)
    clay.add(stem, bulge=0.18, ink=CREAM)
    clay.add(sdf.ellipse(x, y, 0, 0.47, 0.47, 0.1), tint=0.4, bulge=0.08)
    cap = sdf.both(sdf.ellipse(x, y, 0, 0.46, 0.52, 0.53), 0.44 - y)
    nx, ny = sdf.clamp(x / 0.56, -1.0, 1.0), sdf.clamp((y - 0.42) / 0.6, -0.2, 1.0)
    nz = np.sqrt(np.maximum(1.0 - nx * nx - ny * ny, 0.05))
    clay.add(sdf.union(cap, sdf.ellipse(x, y, 0, 0.46, 0.515, 0.06)), normal=(nx, ny, nz))
    for cx, cy, r in ((-0.24, 0.64, 0.085), (0.08, 0.8, 0.1), (0.3, 0.58, 0.075), (0.0, 0.57, 0.06)):
        clay.add(sdf.ellipse(x, y, cx, cy, r, r * 0.85), ink=WHITE, normal=(cx, cy - 0.3, 0.8))


def tree(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.box(x, y, 0, 0.13, 0.06, 0.13), bulge=0.06, ink=BROWN)
    for base, tip, wide in ((0.18, 0.62, 0.34), (0.4, 0.82, 0.27), (0.62, 1.0, 0.19)):
        tier = sdf.polygon(x, y, [(-wide, base), (0, base - 0.05), (wide, base), (0, tip)]) - 0.012
        across = x / np.maximum(wide * (tip - y) / (tip - base) + 0.02, 0.03)
        nx, _, nz = turned(across * 0.9)
        shade = 0.35 * sdf.clamp((y - base) / (tip - base), 0.0, 1.0)
        clay.add(tier, normal=(nx, shade, nz), tint=0.82 + 0.2 * base)


def house(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.box(x, y, 0.23, 0.86, 0.055, 0.13), bulge=0.05, ink=BROWN)
    clay.add(sdf.polygon(x, y, [(0.2, 0.0), (0.4, 0.1), (0.4, 0.55), (0.2, 0.5)]), normal=(0.85, 0.1, 0.5), tint=0.95)
    clay.add(
        sdf.polygon(x, y, [(-0.4, 0.0), (0.2, 0.0), (0.2, 0.5), (-0.1, 0.9), (-0.4, 0.5)]), normal=(-0.1, 0.1, 0.95)
    )
    roof = sdf.polygon(x, y, [(-0.1, 0.97), (0.16, 0.98), (0.47, 0.55), (0.24, 0.46)])
    clay.add(roof, tint=0.5, normal=(0.6, 0.65, 0.4))
    clay.add(sdf.capsule(x, y, (-0.1, 0.95), (-0.45, 0.47), 0.035), tint=0.5, bulge=0.04)
    clay.add(sdf.capsule(x, y, (-0.1, 0.95), (0.24, 0.47), 0.035), tint=0.5, bulge=0.04)
    clay.add(sdf.box(x, y, -0.22, 0.15, 0.075, 0.15, 0.02), ink=BROWN, normal=(0, 0, 1.0))
    clay.add(sdf.box(x, y, 0.04, 0.3, 0.085, 0.085), ink=WHITE, normal=(0, 0, 1.0))
    clay.add(sdf.box(x, y, 0.04, 0.3, 0.06, 0.06), ink=GLOW, normal=(0, 0, 1.0))


def car(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.polygon(x, y, [(-0.62, 0.5), (-0.42, 0.95), (0.2, 0.95), (0.48, 0.5)]) - 0.03, bulge=0.14)
    clay.add(sdf.box(x, y, 0, 0.42, 0.94, 0.22, 0.17), bulge=0.24)
    for corners in (
        [(-0.52, 0.58), (-0.38, 0.87), (-0.14, 0.87), (-0.14, 0.58)],
        [(-0.06, 0.58), (-0.06, 0.87), (0.16, 0.87), (0.36, 0.58)],
    ):
        clay.add(sdf.polygon(x, y, corners) - 0.01, ink=SKY, normal=(0.1, 0.5, 0.8))
    clay.add(sdf.circle(x, y, 0.86, 0.46, 0.07), ink=GLOW, bulge=0.07)
    for wheel in (-0.52, 0.52):
        clay.add(sdf.circle(x, y, wheel, 0.21, 0.21), ink=DARK, bulge=0.06)
        clay.add(sdf.circle(x, y, wheel, 0.21, 0.1), ink=STEEL, bulge=0.1)


def boat(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.capsule(x, y, (0.06, 0.2), (0.06, 0.97), 0.025), ink=BROWN, bulge=0.03)
    clay.add(sdf.polygon(x, y, [(0.12, 0.36), (0.62, 0.36), (0.12, 0.95)]), tint=1.15, normal=(0.25, 0.2, 0.9))
    clay.add(sdf.polygon(x, y, [(0.0, 0.4), (-0.34, 0.4), (0.0, 0.84)]), ink=WHITE, normal=(-0.25, 0.2, 0.9))
    hull = sdf.polygon(x, y, [(-0.74, 0.31), (0.75, 0.35), (0.5, 0.03), (-0.52, 0.03)]) - 0.015
    clay.add(hull, bulge=0.2)
    clay.add(sdf.both(hull, np.abs(y - 0.3) - 0.035), ink=WHITE, normal=(0, 0.2, 0.9))


def fish(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    tail = sdf.polygon(x, y, [(-0.34, 0.45), (-0.74, 0.82), (-0.62, 0.45), (-0.74, 0.08)]) - 0.015
    fin = sdf.polygon(x, y, [(-0.2, 0.75), (0.0, 0.99), (0.26, 0.72)])
    belly = sdf.polygon(x, y, [(-0.1, 0.2), (0.0, 0.01), (0.2, 0.18)])
    clay.add(sdf.union(tail, fin, belly), tint=0.62, bulge=0.08)
    clay.add(sdf.ellipse(x, y, 0.16, 0.45, 0.57, 0.36), bulge=0.36)
    clay.add(sdf.ellipse(x, y, 0.08, 0.36, 0.13, 0.08), tint=0.62, bulge=0.06)
    gill = sdf.both(np.abs(sdf.circle(x, y, 0.62, 0.45, 0.28)) - 0.015, np.maximum(x - 0.45, np.abs(y - 0.45) - 0.2))
    clay.add(gill, tint=0.5, bulge=0.03, faint=0.8)
    clay.add(sdf.circle(x, y, 0.5, 0.55, 0.085), ink=WHITE, normal=(0.2, 0.2, 0.9))
    clay.add(sdf.circle(x, y, 0.52, 0.55, 0.045), ink=DARK, bulge=0.05)
