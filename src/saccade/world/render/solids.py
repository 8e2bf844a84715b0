"""The plain solids: cube, ball, cone, cylinder, pyramid, star, ring."""

from __future__ import annotations

import numpy as np

from saccade.world.render import sdf
from saccade.world.render.clay import Clay, Normal
from saccade.world.render.sdf import Field, clamp

# Cosine and sine of 90° + 36° n, written out so that no machine's library decides them.
_COS = (0.0, -0.587785, -0.951057, -0.951057, -0.587785, 0.0, 0.587785, 0.951057, 0.951057, 0.587785)
_SIN = (1.0, 0.809017, 0.309017, -0.309017, -0.809017, -1.0, -0.809017, -0.309017, 0.309017, 0.809017)


def turned(across: Field, up: float = 0.15) -> Normal:
    """The surface of an upright round body, `across` from -1 at its left edge to 1 at its right."""
    nx = clamp(across, -0.98, 0.98)
    return nx, up, np.sqrt(1.0 - nx * nx)


def cube(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.polygon(x, y, [(-0.54, 0.78), (0.3, 0.78), (0.54, 0.99), (-0.28, 0.99)]), normal=(0.0, 0.95, 0.4))
    clay.add(sdf.polygon(x, y, [(0.3, 0.0), (0.3, 0.78), (0.54, 0.99), (0.54, 0.21)]), normal=(0.9, 0.05, 0.4))
    clay.add(sdf.box(x, y, -0.12, 0.39, 0.42, 0.39, 0.02), normal=(-0.1, 0.1, 0.95))
    edges = sdf.union(
        sdf.capsule(x, y, (-0.5, 0.77), (0.3, 0.77), 0.012), sdf.capsule(x, y, (0.3, 0.03), (0.3, 0.77), 0.012)
    )
    clay.add(edges, tint=1.25, normal=(0.1, 0.6, 0.8), faint=0.7)


def ball(clay: Clay, pose: str) -> None:
    clay.add(sdf.circle(clay.x, clay.y, 0.0, 0.5, 0.5), bulge=0.5)


def cone(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    body = sdf.union(sdf.polygon(x, y, [(-0.42, 0.1), (0.42, 0.1), (0.0, 1.0)]), sdf.ellipse(x, y, 0, 0.1, 0.42, 0.1))
    wide = np.maximum(0.42 * (1.0 - y) / 0.9, 0.03)
    clay.add(body, normal=turned(x / wide, 0.3))


def cylinder(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    body = sdf.union(sdf.box(x, y, 0, 0.48, 0.42, 0.38), sdf.ellipse(x, y, 0, 0.1, 0.42, 0.1))
    clay.add(body, normal=turned(x / 0.42))
    clay.add(sdf.ellipse(x, y, 0, 0.87, 0.42, 0.12), normal=(0.0, 0.95, 0.45))


def pyramid(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.polygon(x, y, [(0.16, 0.0), (0.6, 0.24), (0.0, 1.0)]), normal=(0.85, 0.35, 0.4))
    clay.add(sdf.polygon(x, y, [(-0.6, 0.14), (0.16, 0.0), (0.0, 1.0)]), normal=(-0.25, 0.4, 0.9))
    clay.add(sdf.capsule(x, y, (0.16, 0.02), (0.0, 0.97), 0.012), tint=1.25, normal=(0.3, 0.5, 0.8), faint=0.7)


def star(clay: Clay, pose: str) -> None:
    corners = []
    for n in range(10):
        radius = 0.54 if n % 2 == 0 else 0.25
        corners.append((radius * _COS[n], 0.46 + radius * _SIN[n]))
    clay.add(sdf.polygon(clay.x, clay.y, corners) - 0.015, bulge=0.2)


def ring(clay: Clay, pose: str) -> None:
    clay.add(sdf.ring(clay.x, clay.y, 0, 0.5, 0.355, 0.14), bulge=0.14)
