"""Where things stand: from who does what to whom, to positions in the picture, and from positions to relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saccade.world.catalogue import INVERSE, KINDS, MEDIUM_CUBE, SIZES
from saccade.world.scene import Relation, Thing

Box = tuple[float, float, float, float]

# How far apart two things must stand for a relation to be plain to see.
BESIDE = 0.13  # left of, right of: difference in x
APART = 0.22  # in front of, behind: difference in depth
LANE = 0.3  # … and at most this difference in x
NEAR = 0.34  # next to, looking at: at most this difference in x …
SAME_DEPTH = 0.2  # … and this in depth

ATTACHED = ("on", "inside", "holding", "wearing", "riding")


def foot(depth: float) -> float:
    """Where a thing at `depth` touches the ground, y down."""
    return 0.95 - 0.42 * depth


def drawn_height(thing: Thing, depth: float) -> float:
    return MEDIUM_CUBE * SIZES[thing.size] * KINDS[thing.kind].height * (1.0 - 0.3 * depth)


def box_of(thing: Thing) -> Box:
    """The box a thing would fill if nothing hid it (about: the renderer has the exact one)."""
    half = thing.height * KINDS[thing.kind].width / 2
    return thing.x - half, thing.y - thing.height, thing.x + half, thing.y


def settle(things: Sequence[Thing], acts: Sequence[Relation]) -> tuple[Thing, ...]:
    """Put every thing where its act wants it. Things that stand by themselves keep their x and depth."""
    placed = [_stand(t, t.x, t.depth) for t in things]
    for act in acts:
        a, b = placed[act.subject], placed[act.object]
        kind_a, kind_b = KINDS[a.kind], KINDS[b.kind]
        if act.predicate == "chasing":
            gap = 0.5 * (a.height * kind_a.width + b.height * kind_b.width) + 0.06
            placed[act.subject] = replace(a, pose="running")
            placed[act.object] = replace(_stand(b, a.x + a.facing * gap, a.depth), facing=a.facing, pose="running")
        elif act.predicate == "pushing":
            gap = 0.5 * (a.height * kind_a.width * 0.95 + b.height * kind_b.width)
            placed[act.subject] = replace(a, pose="pushing")
            placed[act.object] = replace(_stand(b, a.x + a.facing * gap, a.depth - 0.01), facing=a.facing)
        elif act.predicate == "on":
            placed[act.subject] = _lift(a, b, b.x, b.y - b.height * kind_b.top, -0.002)
        elif act.predicate == "inside":
            high = drawn_height(a, b.depth)  # a small thing lies high, so that most of it shows over the rim
            placed[act.subject] = _lift(a, b, b.x, b.y - max(0.3 * b.height, 0.6 * b.height - 0.3 * high), 0.001)
        elif act.predicate == "riding" and kind_b.seat:
            x = b.x + b.facing * kind_b.seat[0] * b.height
            placed[act.subject] = replace(
                _lift(a, b, x, b.y - kind_b.seat[1] * b.height, -0.002), pose="sitting", facing=b.facing
            )
        elif act.predicate == "holding" and kind_a.hand:
            x = a.x + a.facing * (kind_a.hand[0] * a.height)
            held = _lift(b, a, x, a.y, -0.002)
            y = a.y - kind_a.hand[1] * a.height + held.height * 0.5
            placed[act.subject] = replace(a, pose="holding")
            placed[act.object] = replace(held, y=round(y, 4), x=round(x + a.facing * held.height * 0.2, 4))
        elif act.predicate == "wearing" and kind_a.head:
            x = a.x + a.facing * kind_a.head[0] * a.height
            placed[act.object] = replace(_lift(b, a, x, a.y - kind_a.head[1] * a.height, -0.003), facing=a.facing)
    return tuple(placed)


def _stand(thing: Thing, x: float, depth: float) -> Thing:
    height = round(drawn_height(thing, depth), 4)
    return replace(thing, pose="still", x=round(x, 4), depth=round(depth, 4), y=round(foot(depth), 4), height=height)


def _lift(thing: Thing, base: Thing, x: float, y: float, nearer: float) -> Thing:
    """`thing` held, carried or supported by `base`, a hair nearer or farther so that it is painted in its turn."""
    height = round(drawn_height(thing, base.depth), 4)
    return replace(thing, x=round(x, 4), y=round(y, 4), depth=round(base.depth + nearer, 4), height=height)


def fits(things: Sequence[Thing], acts: Sequence[Relation], hidden: float) -> bool:
    """Whether all things are in the picture and none is hidden by more than `hidden` of its box."""
    boxes = [box_of(t) for t in things]
    if any(b[0] < 0.015 or b[2] > 0.985 or b[1] < 0.02 or b[3] > 0.985 for b in boxes):
        return False
    joined = {frozenset((a.subject, a.object)) for a in acts if a.predicate in ATTACHED}
    for i, far in enumerate(things):
        covered = 0.0
        for j, near in enumerate(things):
            if i == j or near.depth > far.depth or (near.depth == far.depth and j < i):
                continue
            if frozenset((i, j)) not in joined:
                covered += overlap(boxes[i], boxes[j])
        area = (boxes[i][2] - boxes[i][0]) * (boxes[i][3] - boxes[i][1])
        if covered > hidden * area:
            return False
    return True


def overlap(a: Box, b: Box) -> float:
    """Area shared by two boxes."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return wide * high if wide > 0 and high > 0 else 0.0


def relate(things: Sequence[Thing], acts: Sequence[Relation]) -> tuple[Relation, ...]:
    """Every relation that holds: the acts, what they imply, and what can be seen from where things are."""
    found = list(acts)
    joined = {frozenset((a.subject, a.object)) for a in acts if a.predicate in ATTACHED}
    for act in acts:
        if act.predicate == "on":
            found.append(Relation(act.object, "under", act.subject))
        elif act.predicate == "riding":
            found += [Relation(act.subject, "on", act.object), Relation(act.object, "under", act.subject)]
        elif act.predicate == "wearing":
            found += [Relation(act.object, "on", act.subject), Relation(act.subject, "under", act.object)]
    # A held or worn thing is where its bearer is: only things with a place of their own are in front or behind.
    lifted = {a.subject for a in acts if a.predicate in ("on", "inside", "riding")}
    lifted |= {a.object for a in acts if a.predicate in ("holding", "wearing")}
    for i, a in enumerate(things):
        for j, b in enumerate(things):
            if i == j or frozenset((i, j)) in joined:
                continue
            across = b.x - a.x
            if across >= BESIDE:
                found += [Relation(i, "left of", j), Relation(j, INVERSE["left of"], i)]
            if i in lifted or j in lifted:
                continue
            if b.depth - a.depth >= APART and abs(across) <= LANE:
                found += [Relation(i, "in front of", j), Relation(j, INVERSE["in front of"], i)]
            if abs(across) <= NEAR and abs(b.depth - a.depth) <= SAME_DEPTH:
                found.append(Relation(i, "next to", j))
                if "creature" in KINDS[a.kind].roles and across * a.facing > 0:
                    found.append(Relation(i, "looking at", j))
    return tuple(dict.fromkeys(found))
