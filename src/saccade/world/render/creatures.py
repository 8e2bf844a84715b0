"""Creatures: duck, cat, dog, horse, bear, robot. They look forward along x; their pose says what they do."""

from __future__ import annotations

from saccade.world.render import sdf
from saccade.world.render.clay import BEAK, CREAM, DARK, GLOW, STEEL, WHITE, Clay

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
        leg = sdf.capsule(clay.x, clay.y, (at, hip), (to, thick + lift), thick * 1.25, thick)
        clay.add(leg, bulge=thick, tint=tint)


def _eye(clay: Clay, cx: float, cy: float, radius: float) -> None:
    clay.add(sdf.circle(clay.x, clay.y, cx, cy, radius), ink=DARK, normal=(0.0, 0.0, 1.0))
    clay.add(
        sdf.circle(clay.x, clay.y, cx - radius * 0.3, cy + radius * 0.35, radius * 0.35), ink=WHITE, normal=(0, 0, 1.0)
    )


def duck(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    if pose == "running":
        for foot in (-0.2, 0.12):
            clay.add(sdf.capsule(x, y, (foot * 0.4, 0.2), (foot, 0.04), 0.045), ink=BEAK, bulge=0.05)
    base = 0.06 if pose == "running" else 0.0
    tail = sdf.polygon(x, y, [(-0.3, 0.28 + base), (-0.57, 0.56 + base), (-0.12, 0.5 + base)]) - 0.02
    body = sdf.melt(sdf.ellipse(x, y, -0.08, 0.28 + base, 0.4, 0.27), tail, 0.1)
    neck = sdf.capsule(x, y, (0.14, 0.4), (0.23, 0.68), 0.14)
    clay.add(sdf.polygon(x, y, [(0.36, 0.8), (0.57, 0.7), (0.36, 0.65)]) - 0.015, ink=BEAK, bulge=0.06)
    head = sdf.circle(x, y, 0.25, 0.77, 0.195)
    clay.add(sdf.melt(sdf.melt(body, neck, 0.12), head, 0.06), bulge=0.24)
    clay.add(sdf.ellipse(x, y, -0.15, 0.33 + base, 0.21, 0.14), bulge=0.1, tint=0.72)
    _eye(clay, 0.31, 0.82, 0.045)


def cat(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    swing = -0.1 if pose == "running" else 0.0
    tail = sdf.union(
        sdf.capsule(x, y, (-0.32, 0.5), (-0.5, 0.62 + swing), 0.05),
        sdf.capsule(x, y, (-0.5, 0.62 + swing), (-0.46, 0.9 + swing), 0.05, 0.04),
    )
    clay.add(tail, bulge=0.05, tint=0.85)
    _legs(clay, (-0.28, 0.2), 0.36, 0.065, pose)
    clay.add(sdf.capsule(x, y, (-0.25, 0.44), (0.2, 0.47), 0.18, 0.17), bulge=0.17)
    ears = sdf.union(
        sdf.polygon(x, y, [(0.1, 0.78), (0.12, 0.99), (0.29, 0.87)]),
        sdf.polygon(x, y, [(0.5, 0.78), (0.48, 0.99), (0.31, 0.87)]),
    )
    clay.add(ears - 0.01, bulge=0.05, tint=0.8)
    clay.add(sdf.ellipse(x, y, 0.3, 0.7, 0.235, 0.2), bulge=0.19)
    clay.add(sdf.ellipse(x, y, 0.35, 0.61, 0.1, 0.06), ink=WHITE, normal=(0, 0, 1.0), faint=0.75)
    clay.add(sdf.ellipse(x, y, 0.36, 0.645, 0.03, 0.022), ink=DARK, normal=(0, 0, 1.0))
    _eye(clay, 0.24, 0.73, 0.042)
    _eye(clay, 0.44, 0.73, 0.042)


def dog(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.capsule(x, y, (-0.4, 0.58), (-0.6, 0.8), 0.05, 0.035), bulge=0.05, tint=0.9)
    _legs(clay, (-0.34, 0.2), 0.38, 0.07, pose)
    clay.add(sdf.capsule(x, y, (-0.3, 0.5), (0.22, 0.52), 0.17, 0.19), bulge=0.18)
    head = sdf.melt(sdf.circle(x, y, 0.34, 0.76, 0.185), sdf.capsule(x, y, (0.4, 0.7), (0.56, 0.66), 0.1, 0.08), 0.06)
    clay.add(sdf.melt(head, sdf.capsule(x, y, (0.22, 0.55), (0.3, 0.7), 0.13), 0.05), bulge=0.16)
    clay.add(sdf.capsule(x, y, (0.24, 0.86), (0.16, 0.62), 0.06, 0.085), bulge=0.07, tint=0.55)
    clay.add(sdf.ellipse(x, y, 0.62, 0.7, 0.045, 0.038), ink=DARK, bulge=0.04)
    _eye(clay, 0.42, 0.81, 0.042)


def horse(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.capsule(x, y, (-0.36, 0.58), (-0.52, 0.26), 0.06, 0.04), bulge=0.05, tint=0.42)
    _legs(clay, (-0.3, 0.18), 0.45, 0.048, pose)
    body = sdf.capsule(x, y, (-0.22, 0.52), (0.14, 0.52), 0.145, 0.14)
    neck = sdf.capsule(x, y, (0.16, 0.56), (0.32, 0.84), 0.12, 0.085)
    head = sdf.capsule(x, y, (0.33, 0.86), (0.5, 0.74), 0.085, 0.06)
    ear = sdf.polygon(x, y, [(0.27, 0.9), (0.29, 1.0), (0.36, 0.92)])
    clay.add(sdf.union(ear, sdf.melt(sdf.melt(body, neck, 0.08), head, 0.04)), bulge=0.13)
    mane = sdf.capsule(x, y, (0.06, 0.66), (0.25, 0.94), 0.05, 0.045)
    clay.add(mane, bulge=0.05, tint=0.42)
    _eye(clay, 0.39, 0.86, 0.026)


def bear(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    sitting = pose == "sitting"
    _arm(clay, pose, far=True)
    for side in (-1.0, 1.0):
        clay.add(sdf.circle(x, y, side * 0.17, 0.9, 0.085), bulge=0.08, tint=0.85)
        clay.add(sdf.circle(x, y, side * 0.17, 0.9, 0.045), ink=CREAM, normal=(0, 0, 1.0), faint=0.6)
        step = 0.1 if pose == "running" else 0.0
        foot = (side * (0.14 + step) + (0.1 if sitting else 0.0), 0.085 + (0.05 if side * step > 0 else 0.0))
        clay.add(sdf.capsule(x, y, (side * 0.12, 0.24), foot, 0.1, 0.085), bulge=0.09, tint=0.92)
    clay.add(sdf.ellipse(x, y, 0, 0.36, 0.24, 0.25), bulge=0.22)
    clay.add(sdf.ellipse(x, y, 0.03, 0.34, 0.13, 0.15), ink=CREAM, normal=(0, 0.1, 0.95), faint=0.55)
    clay.add(sdf.ellipse(x, y, 0, 0.74, 0.235, 0.2), bulge=0.2)
    clay.add(sdf.ellipse(x, y, 0.05, 0.67, 0.1, 0.075), ink=CREAM, bulge=0.08)
    clay.add(sdf.ellipse(x, y, 0.06, 0.7, 0.04, 0.03), ink=DARK, bulge=0.03)
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
    clay.add(sdf.capsule(clay.x, clay.y, shoulder, reach, 0.075, 0.065), bulge=0.07, tint=0.75 if far else 0.95)


def robot(clay: Clay, pose: str) -> None:
    x, y = clay.x, clay.y
    clay.add(sdf.capsule(x, y, (0, 0.9), (0, 0.97), 0.012), ink=STEEL, bulge=0.02)
    clay.add(sdf.circle(x, y, 0, 0.975, 0.026), ink=BEAK, bulge=0.03)
    _arm(clay, pose, far=True)
    for side in (-1.0, 1.0):
        step = 0.1 if pose == "running" else 0.0
        lift = 0.06 if side * step > 0 else 0.0
        foot = side * (0.11 + step) + (0.1 if pose == "sitting" else 0.0)
        clay.add(sdf.capsule(x, y, (side * 0.1, 0.26), (foot, 0.08 + lift), 0.06), ink=STEEL, bulge=0.06)
        clay.add(sdf.box(x, y, foot + 0.02, 0.045 + lift, 0.095, 0.045, 0.03), bulge=0.05, tint=0.75)
    clay.add(sdf.box(x, y, 0, 0.6, 0.05, 0.04), ink=STEEL, bulge=0.04)
    clay.add(sdf.box(x, y, 0, 0.4, 0.21, 0.19, 0.05), bulge=0.08)
    clay.add(sdf.box(x, y, 0.02, 0.42, 0.12, 0.09, 0.02), ink=STEEL, normal=(0, 0.2, 0.95))
    for n, ink in enumerate((BEAK, GLOW, WHITE)):
        clay.add(sdf.circle(x, y, -0.05 + 0.07 * n, 0.44, 0.024), ink=ink, normal=(0, 0, 1.0))
    clay.add(sdf.box(x, y, 0, 0.77, 0.21, 0.14, 0.06), bulge=0.09)
    clay.add(sdf.box(x, y, 0.03, 0.78, 0.15, 0.07, 0.05), ink=DARK, normal=(0, 0.1, 0.95))
    for eye in (-0.05, 0.11):
        clay.add(sdf.circle(x, y, eye, 0.78, 0.038), ink=GLOW, normal=(0, 0, 1.0))
    _arm(clay, pose, far=False)
