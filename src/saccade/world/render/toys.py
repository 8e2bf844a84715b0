"""The shapes of all toys: solids, things of the house and of the outdoors, creatures. Each is modelled in clay.

Things face forward along x; a creature's pose says what it does."""

from __future__ import annotations

import numpy as np

from saccade.world.render.clay import (
    BEAK,
    BROWN,
    CREAM,
    DARK,
    GLOW,
    SKY,
    STEEL,
    WHITE,
    Clay,
    Field,
    Normal,
    clamp,
    melt,
    union,
)

# Cosine and sine of 90° + 36° n, written out so that no machine's library decides them.
_COS = (0.0, -0.587785, -0.951057, -0.951057, -0.587785, 0.0, 0.587785, 0.951057, 0.951057, 0.587785)
_SIN = (1.0, 0.809017, 0.309017, -0.309017, -0.809017, -1.0, -0.809017, -0.309017, 0.309017, 0.809017)


def turned(across: Field, up: float = 0.15) -> Normal:
    """The surface of an upright round body, `across` from -1 at its left edge to 1 at its right."""
    nx = clamp(across, -0.98, 0.98)
    return nx, up, np.sqrt(1.0 - nx * nx)


def cube(clay: Clay, pose: str) -> None:
    clay.add(clay.polygon([(-0.54, 0.78), (0.3, 0.78), (0.54, 0.99), (-0.28, 0.99)]), normal=(0.0, 0.95, 0.4))
    clay.add(clay.polygon([(0.3, 0.0), (0.3, 0.78), (0.54, 0.99), (0.54, 0.21)]), normal=(0.9, 0.05, 0.4))
    clay.add(clay.box(-0.12, 0.39, 0.42, 0.39, 0.02), normal=(-0.1, 0.1, 0.95))
    edges = union(clay.capsule((-0.5, 0.77), (0.3, 0.77), 0.012), clay.capsule((0.3, 0.03), (0.3, 0.77), 0.012))
    clay.add(edges, tint=1.25, normal=(0.1, 0.6, 0.8), faint=0.7)


def ball(clay: Clay, pose: str) -> None:
    clay.add(clay.circle(0.0, 0.5, 0.5), bulge=0.5)


def cone(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    body = union(clay.polygon([(-0.42, 0.1), (0.42, 0.1), (0.0, 1.0)]), clay.ellipse(0, 0.1, 0.42, 0.1))
    wide = np.maximum(0.42 * (1.0 - y) / 0.9, 0.03)
    clay.add(body, normal=turned(x / wide, 0.3))


def cylinder(clay: Clay, pose: str) -> None:
    x = clay.x
    body = union(clay.box(0, 0.48, 0.42, 0.38), clay.ellipse(0, 0.1, 0.42, 0.1))
    clay.add(body, normal=turned(x / 0.42))
    clay.add(clay.ellipse(0, 0.87, 0.42, 0.12), normal=(0.0, 0.95, 0.45))


def pyramid(clay: Clay, pose: str) -> None:
    clay.add(clay.polygon([(0.16, 0.0), (0.6, 0.24), (0.0, 1.0)]), normal=(0.85, 0.35, 0.4))
    clay.add(clay.polygon([(-0.6, 0.14), (0.16, 0.0), (0.0, 1.0)]), normal=(-0.25, 0.4, 0.9))
    clay.add(clay.capsule((0.16, 0.02), (0.0, 0.97), 0.012), tint=1.25, normal=(0.3, 0.5, 0.8), faint=0.7)


def star(clay: Clay, pose: str) -> None:
    corners = []
    for n in range(10):
        radius = 0.54 if n % 2 == 0 else 0.25
        corners.append((radius * _COS[n], 0.46 + radius * _SIN[n]))
    clay.add(clay.polygon(corners) - 0.015, bulge=0.2)


def ring(clay: Clay, pose: str) -> None:
    clay.add(clay.ring(0, 0.5, 0.355, 0.14), bulge=0.14)


def mug(clay: Clay, pose: str) -> None:
    x = clay.x
    clay.add(clay.ring(0.3, 0.47, 0.2, 0.06), bulge=0.06, tint=0.9)
    body = union(clay.box(-0.13, 0.48, 0.42, 0.4), clay.ellipse(-0.13, 0.08, 0.42, 0.08))
    clay.add(body, normal=turned((x + 0.13) / 0.42))
    clay.add(clay.ellipse(-0.13, 0.88, 0.42, 0.115), normal=(0.0, 0.8, 0.6), tint=1.1)
    clay.add(clay.ellipse(-0.13, 0.88, 0.35, 0.08), tint=0.25, normal=(0.0, -0.2, 0.9))


def lamp(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(clay.ellipse(0, 0.06, 0.24, 0.06), bulge=0.05, tint=0.8)
    clay.add(clay.capsule((0, 0.06), (0, 0.6), 0.035), bulge=0.035, tint=0.8)
    clay.add(clay.ellipse(0, 0.5, 0.33, 0.07), ink=GLOW, normal=(0.0, 0.7, 0.7))
    shade = clay.polygon([(-0.35, 0.5), (0.35, 0.5), (0.19, 0.98), (-0.19, 0.98)])
    wide = 0.35 - 0.333 * (y - 0.5)
    clay.add(shade, normal=turned(x / np.maximum(wide, 0.1), 0.25))


def table(clay: Clay, pose: str) -> None:
    for leg in (-0.5, 0.62):
        clay.add(clay.box(leg, 0.47, 0.045, 0.36), bulge=0.05, tint=0.6)
    for leg in (-0.7, 0.42):
        clay.add(clay.box(leg, 0.4, 0.055, 0.4), bulge=0.06, tint=0.9)
    top = clay.polygon([(-0.79, 0.84), (0.52, 0.84), (0.79, 0.99), (-0.56, 0.99)])
    clay.add(top, normal=(0.0, 0.95, 0.4))
    clay.add(clay.polygon([(0.52, 0.74), (0.52, 0.84), (0.79, 0.99), (0.79, 0.89)]), normal=(0.9, 0.0, 0.4))
    clay.add(clay.box(-0.135, 0.79, 0.655, 0.05), normal=(0.0, 0.1, 0.95))


def basket_back(clay: Clay) -> None:
    """The inner wall, painted before what lies in the basket."""
    y = clay.y
    hole = clay.ellipse(0, 0.76, 0.68, 0.2)
    clay.add(hole, tint=0.32, normal=(0.0, 0.2, 0.9))
    clay.add(np.maximum(np.abs(hole + 0.03) - 0.04, 0.74 - y), bulge=0.045, tint=0.8)


def basket(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    body = union(
        clay.polygon([(-0.52, 0.1), (0.52, 0.1), (0.68, 0.74), (-0.68, 0.74)]),
        clay.ellipse(0, 0.12, 0.52, 0.12),
    )
    body = np.maximum(body, -clay.ellipse(0, 0.76, 0.68, 0.19))  # the near rim hangs below the far one
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
    rim = np.abs(clay.ellipse(0, 0.76, 0.66, 0.19)) - 0.04
    rim = np.maximum(rim, y - 0.76)
    clay.add(rim, bulge=0.045, tint=1.05)


def hat(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(clay.ellipse(0, 0.17, 0.83, 0.17), bulge=0.12, tint=0.9)
    crown = union(
        clay.polygon([(-0.44, 0.2), (0.44, 0.2), (0.38, 0.86), (-0.38, 0.86)]),
        clay.ellipse(0, 0.86, 0.38, 0.12),
        clay.ellipse(0, 0.2, 0.44, 0.1),
    )
    clay.add(crown, normal=turned(x / 0.44, 0.2))
    band = np.maximum(crown, np.abs(y - 0.3 - 0.15 * x * x) - 0.09)
    clay.add(band, ink=DARK, normal=turned(x / 0.44, 0.2))
    clay.add(clay.ellipse(0, 0.86, 0.37, 0.11), normal=(0.0, 0.9, 0.5))


def key(clay: Clay, pose: str) -> None:
    teeth = union(clay.box(0.12, 0.07, 0.12, 0.05), clay.box(0.1, 0.23, 0.1, 0.045))
    shape = union(clay.ring(0, 0.78, 0.155, 0.07), clay.box(0, 0.3, 0.065, 0.3, 0.03), teeth)
    clay.add(shape, bulge=0.06)
    clay.add(clay.box(0, 0.55, 0.11, 0.035, 0.03), bulge=0.04)


def mushroom(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    stem = clay.capsule((0, 0.16), (0, 0.5), 0.19, 0.14)
    clay.add(stem, bulge=0.18, ink=CREAM)
    clay.add(clay.ellipse(0, 0.47, 0.47, 0.1), tint=0.4, bulge=0.08)
    cap = np.maximum(clay.ellipse(0, 0.46, 0.52, 0.53), 0.44 - y)
    nx, ny = clamp(x / 0.56, -1.0, 1.0), clamp((y - 0.42) / 0.6, -0.2, 1.0)
    nz = np.sqrt(np.maximum(1.0 - nx * nx - ny * ny, 0.05))
    clay.add(union(cap, clay.ellipse(0, 0.46, 0.515, 0.06)), normal=(nx, ny, nz))
    for cx, cy, r in ((-0.24, 0.64, 0.085), (0.08, 0.8, 0.1), (0.3, 0.58, 0.075), (0.0, 0.57, 0.06)):
        clay.add(clay.ellipse(cx, cy, r, r * 0.85), ink=WHITE, normal=(cx, cy - 0.3, 0.8))


def tree(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(clay.box(0, 0.13, 0.06, 0.13), bulge=0.06, ink=BROWN)
    for base, tip, wide in ((0.18, 0.62, 0.34), (0.4, 0.82, 0.27), (0.62, 1.0, 0.19)):
        tier = clay.polygon([(-wide, base), (0, base - 0.05), (wide, base), (0, tip)]) - 0.012
        across = x / np.maximum(wide * (tip - y) / (tip - base) + 0.02, 0.03)
        nx, _, nz = turned(across * 0.9)
        shade = 0.35 * clamp((y - base) / (tip - base), 0.0, 1.0)
        clay.add(tier, normal=(nx, shade, nz), tint=0.82 + 0.2 * base)


def house(clay: Clay, pose: str) -> None:
    clay.add(clay.box(0.23, 0.86, 0.055, 0.13), bulge=0.05, ink=BROWN)
    clay.add(clay.polygon([(0.2, 0.0), (0.4, 0.1), (0.4, 0.55), (0.2, 0.5)]), normal=(0.85, 0.1, 0.5), tint=0.95)
    clay.add(clay.polygon([(-0.4, 0.0), (0.2, 0.0), (0.2, 0.5), (-0.1, 0.9), (-0.4, 0.5)]), normal=(-0.1, 0.1, 0.95))
    roof = clay.polygon([(-0.1, 0.97), (0.16, 0.98), (0.47, 0.55), (0.24, 0.46)])
    clay.add(roof, tint=0.5, normal=(0.6, 0.65, 0.4))
    clay.add(clay.capsule((-0.1, 0.95), (-0.45, 0.47), 0.035), tint=0.5, bulge=0.04)
    clay.add(clay.capsule((-0.1, 0.95), (0.24, 0.47), 0.035), tint=0.5, bulge=0.04)
    clay.add(clay.box(-0.22, 0.15, 0.075, 0.15, 0.02), ink=BROWN, normal=(0, 0, 1.0))
    clay.add(clay.box(0.04, 0.3, 0.085, 0.085), ink=WHITE, normal=(0, 0, 1.0))
    clay.add(clay.box(0.04, 0.3, 0.06, 0.06), ink=GLOW, normal=(0, 0, 1.0))


def car(clay: Clay, pose: str) -> None:
    clay.add(clay.polygon([(-0.62, 0.5), (-0.42, 0.95), (0.2, 0.95), (0.48, 0.5)]) - 0.03, bulge=0.14)
    clay.add(clay.box(0, 0.42, 0.94, 0.22, 0.17), bulge=0.24)
    for corners in (
        [(-0.52, 0.58), (-0.38, 0.87), (-0.14, 0.87), (-0.14, 0.58)],
        [(-0.06, 0.58), (-0.06, 0.87), (0.16, 0.87), (0.36, 0.58)],
    ):
        clay.add(clay.polygon(corners) - 0.01, ink=SKY, normal=(0.1, 0.5, 0.8))
    clay.add(clay.circle(0.86, 0.46, 0.07), ink=GLOW, bulge=0.07)
    for wheel in (-0.52, 0.52):
        clay.add(clay.circle(wheel, 0.21, 0.21), ink=DARK, bulge=0.06)
        clay.add(clay.circle(wheel, 0.21, 0.1), ink=STEEL, bulge=0.1)


def boat(clay: Clay, pose: str) -> None:
    y = clay.y
    clay.add(clay.capsule((0.06, 0.2), (0.06, 0.97), 0.025), ink=BROWN, bulge=0.03)
    clay.add(clay.polygon([(0.12, 0.36), (0.62, 0.36), (0.12, 0.95)]), tint=1.15, normal=(0.25, 0.2, 0.9))
    clay.add(clay.polygon([(0.0, 0.4), (-0.34, 0.4), (0.0, 0.84)]), ink=WHITE, normal=(-0.25, 0.2, 0.9))
    hull = clay.polygon([(-0.74, 0.31), (0.75, 0.35), (0.5, 0.03), (-0.52, 0.03)]) - 0.015
    clay.add(hull, bulge=0.2)
    clay.add(np.maximum(hull, np.abs(y - 0.3) - 0.035), ink=WHITE, normal=(0, 0.2, 0.9))


def fish(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    tail = clay.polygon([(-0.34, 0.45), (-0.74, 0.82), (-0.62, 0.45), (-0.74, 0.08)]) - 0.015
    fin = clay.polygon([(-0.2, 0.75), (0.0, 0.99), (0.26, 0.72)])
    belly = clay.polygon([(-0.1, 0.2), (0.0, 0.01), (0.2, 0.18)])
    clay.add(union(tail, fin, belly), tint=0.62, bulge=0.08)
    clay.add(clay.ellipse(0.16, 0.45, 0.57, 0.36), bulge=0.36)
    clay.add(clay.ellipse(0.08, 0.36, 0.13, 0.08), tint=0.62, bulge=0.06)
    gill = np.maximum(np.abs(clay.circle(0.62, 0.45, 0.28)) - 0.015, np.maximum(x - 0.45, np.abs(y - 0.45) - 0.2))
    clay.add(gill, tint=0.5, bulge=0.03, faint=0.8)
    clay.add(clay.circle(0.5, 0.55, 0.085), ink=WHITE, normal=(0.2, 0.2, 0.9))
    clay.add(clay.circle(0.52, 0.55, 0.045), ink=DARK, bulge=0.05)


Legs = tuple[tuple[float, float, bool], ...]  # hip x, foot x, far side?


def _legs(clay: Clay, hips: tuple[float, float], hip: float, thick: float, pose: str) -> None:
    """Four legs under a long body, stretched when it runs."""
    back, front = hips
    stride = 0.2 if pose == "running" else 0.0
    raised = 0.07 if pose == "running" else 0.0
    spread = 0.09
    for at, to, lift, tint in (
        (back + spread, back + spread - stride, raised, 0.62),
        (front - spread, front - spread + stride, 0.0, 0.62),
        (back, back + stride * 0.8, 0.0, 1.0),
        (front, front + stride * 1.4, raised, 1.0),
    ):
        leg = clay.capsule((at, hip), (to, thick + lift), thick * 1.25, thick)
        clay.add(leg, bulge=thick, tint=tint)


def _eye(clay: Clay, cx: float, cy: float, radius: float) -> None:
    clay.add(clay.circle(cx, cy, radius), ink=DARK, normal=(0.0, 0.0, 1.0))
    clay.add(clay.circle(cx - radius * 0.3, cy + radius * 0.35, radius * 0.35), ink=WHITE, normal=(0, 0, 1.0))


def duck(clay: Clay, pose: str) -> None:
    if pose == "running":
        for foot in (-0.2, 0.12):
            clay.add(clay.capsule((foot * 0.4, 0.2), (foot, 0.04), 0.045), ink=BEAK, bulge=0.05)
    base = 0.06 if pose == "running" else 0.0
    tail = clay.polygon([(-0.3, 0.28 + base), (-0.57, 0.56 + base), (-0.12, 0.5 + base)]) - 0.02
    body = melt(clay.ellipse(-0.08, 0.28 + base, 0.4, 0.27), tail, 0.1)
    neck = clay.capsule((0.14, 0.4), (0.23, 0.68), 0.14)
    clay.add(clay.polygon([(0.36, 0.8), (0.57, 0.7), (0.36, 0.65)]) - 0.015, ink=BEAK, bulge=0.06)
    head = clay.circle(0.25, 0.77, 0.195)
    clay.add(melt(melt(body, neck, 0.12), head, 0.06), bulge=0.24)
    clay.add(clay.ellipse(-0.15, 0.33 + base, 0.21, 0.14), bulge=0.1, tint=0.72)
    _eye(clay, 0.31, 0.82, 0.045)


def cat(clay: Clay, pose: str) -> None:
    swing = -0.1 if pose == "running" else 0.0
    tail = union(
        clay.capsule((-0.32, 0.5), (-0.5, 0.62 + swing), 0.05),
        clay.capsule((-0.5, 0.62 + swing), (-0.46, 0.9 + swing), 0.05, 0.04),
    )
    clay.add(tail, bulge=0.05, tint=0.85)
    _legs(clay, (-0.28, 0.2), 0.36, 0.065, pose)
    clay.add(clay.capsule((-0.25, 0.44), (0.2, 0.47), 0.18, 0.17), bulge=0.17)
    ears = union(
        clay.polygon([(0.1, 0.78), (0.12, 0.99), (0.29, 0.87)]),
        clay.polygon([(0.5, 0.78), (0.48, 0.99), (0.31, 0.87)]),
    )
    clay.add(ears - 0.01, bulge=0.05, tint=0.8)
    clay.add(clay.ellipse(0.3, 0.7, 0.235, 0.2), bulge=0.19)
    clay.add(clay.ellipse(0.35, 0.61, 0.1, 0.06), ink=WHITE, normal=(0, 0, 1.0), faint=0.75)
    clay.add(clay.ellipse(0.36, 0.645, 0.03, 0.022), ink=DARK, normal=(0, 0, 1.0))
    _eye(clay, 0.24, 0.73, 0.042)
    _eye(clay, 0.44, 0.73, 0.042)


def dog(clay: Clay, pose: str) -> None:
    clay.add(clay.capsule((-0.4, 0.58), (-0.6, 0.8), 0.05, 0.035), bulge=0.05, tint=0.9)
    _legs(clay, (-0.34, 0.2), 0.38, 0.07, pose)
    clay.add(clay.capsule((-0.3, 0.5), (0.22, 0.52), 0.17, 0.19), bulge=0.18)
    head = melt(clay.circle(0.34, 0.76, 0.185), clay.capsule((0.4, 0.7), (0.56, 0.66), 0.1, 0.08), 0.06)
    clay.add(melt(head, clay.capsule((0.22, 0.55), (0.3, 0.7), 0.13), 0.05), bulge=0.16)
    clay.add(clay.capsule((0.24, 0.86), (0.16, 0.62), 0.06, 0.085), bulge=0.07, tint=0.55)
    clay.add(clay.ellipse(0.62, 0.7, 0.045, 0.038), ink=DARK, bulge=0.04)
    _eye(clay, 0.42, 0.81, 0.042)


def horse(clay: Clay, pose: str) -> None:
    clay.add(clay.capsule((-0.36, 0.58), (-0.52, 0.26), 0.06, 0.04), bulge=0.05, tint=0.42)
    _legs(clay, (-0.3, 0.18), 0.45, 0.048, pose)
    body = clay.capsule((-0.22, 0.52), (0.14, 0.52), 0.145, 0.14)
    neck = clay.capsule((0.16, 0.56), (0.32, 0.84), 0.12, 0.085)
    head = clay.capsule((0.33, 0.86), (0.5, 0.74), 0.085, 0.06)
    ear = clay.polygon([(0.27, 0.9), (0.29, 1.0), (0.36, 0.92)])
    clay.add(union(ear, melt(melt(body, neck, 0.08), head, 0.04)), bulge=0.13)
    mane = clay.capsule((0.06, 0.66), (0.25, 0.94), 0.05, 0.045)
    clay.add(mane, bulge=0.05, tint=0.42)
    _eye(clay, 0.39, 0.86, 0.026)


def bear(clay: Clay, pose: str) -> None:
    sitting = pose == "sitting"
    _arm(clay, pose, far=True)
    for side in (-1.0, 1.0):
        clay.add(clay.circle(side * 0.17, 0.9, 0.085), bulge=0.08, tint=0.85)
        clay.add(clay.circle(side * 0.17, 0.9, 0.045), ink=CREAM, normal=(0, 0, 1.0), faint=0.6)
        step = 0.1 if pose == "running" else 0.0
        foot = (side * (0.14 + step) + (0.1 if sitting else 0.0), 0.085 + (0.05 if side * step > 0 else 0.0))
        clay.add(clay.capsule((side * 0.12, 0.24), foot, 0.1, 0.085), bulge=0.09, tint=0.92)
    clay.add(clay.ellipse(0, 0.36, 0.24, 0.25), bulge=0.22)
    clay.add(clay.ellipse(0.03, 0.34, 0.13, 0.15), ink=CREAM, normal=(0, 0.1, 0.95), faint=0.55)
    clay.add(clay.ellipse(0, 0.74, 0.235, 0.2), bulge=0.2)
    clay.add(clay.ellipse(0.05, 0.67, 0.1, 0.075), ink=CREAM, bulge=0.08)
    clay.add(clay.ellipse(0.06, 0.7, 0.04, 0.03), ink=DARK, bulge=0.03)
    _eye(clay, -0.05, 0.78, 0.032)
    _eye(clay, 0.15, 0.78, 0.032)
    _arm(clay, pose, far=False)


def _arm(clay: Clay, pose: str, far: bool) -> None:
    """Arms reach forward to hold or push, swing when running, hang otherwise."""
    side = 0.2 if far else -0.2
    reach = {
        "holding": (0.4, 0.47) if far else (-0.3, 0.3),
        "pushing": (0.42, 0.5) if far else (0.38, 0.4),
        "running": (0.36, 0.5) if far else (-0.36, 0.34),
        "sitting": (0.34, 0.36) if far else (0.2, 0.3),
    }.get(pose, (0.31, 0.28) if far else (-0.31, 0.28))
    shoulder = (side, 0.5)
    if pose == "pushing" and not far:
        shoulder = (-0.1, 0.48)
    clay.add(clay.capsule(shoulder, reach, 0.075, 0.065), bulge=0.07, tint=0.75 if far else 0.95)


def robot(clay: Clay, pose: str) -> None:
    clay.add(clay.capsule((0, 0.9), (0, 0.97), 0.012), ink=STEEL, bulge=0.02)
    clay.add(clay.circle(0, 0.975, 0.026), ink=BEAK, bulge=0.03)
    _arm(clay, pose, far=True)
    for side in (-1.0, 1.0):
        step = 0.1 if pose == "running" else 0.0
        lift = 0.06 if side * step > 0 else 0.0
        foot = side * (0.11 + step) + (0.1 if pose == "sitting" else 0.0)
        clay.add(clay.capsule((side * 0.1, 0.26), (foot, 0.08 + lift), 0.06), ink=STEEL, bulge=0.06)
        clay.add(clay.box(foot + 0.02, 0.045 + lift, 0.095, 0.045, 0.03), bulge=0.05, tint=0.75)
    clay.add(clay.box(0, 0.6, 0.05, 0.04), ink=STEEL, bulge=0.04)
    clay.add(clay.box(0, 0.4, 0.21, 0.19, 0.05), bulge=0.08)
    clay.add(clay.box(0.02, 0.42, 0.12, 0.09, 0.02), ink=STEEL, normal=(0, 0.2, 0.95))
    for n, ink in enumerate((BEAK, GLOW, WHITE)):
        clay.add(clay.circle(-0.05 + 0.07 * n, 0.44, 0.024), ink=ink, normal=(0, 0, 1.0))
    clay.add(clay.box(0, 0.77, 0.21, 0.14, 0.06), bulge=0.09)
    clay.add(clay.box(0.03, 0.78, 0.15, 0.07, 0.05), ink=DARK, normal=(0, 0.1, 0.95))
    for eye in (-0.05, 0.11):
        clay.add(clay.circle(eye, 0.78, 0.038), ink=GLOW, normal=(0, 0, 1.0))
    _arm(clay, pose, far=False)
