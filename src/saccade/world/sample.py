"""Scenes drawn at random: how many things, which, what they do, and where that puts them in the picture.

From who does what to whom follow positions, from positions relations. Some compositions are kept out of every split
but `novel`: each of their parts is shown elsewhere, never the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from saccade.world.catalogue import (
    BACKGROUNDS,
    COLOURS,
    KINDS,
    LIGHTINGS,
    MATERIALS,
    MEDIUM_CUBE,
    SIZES,
    column,
    kinds_with,
    possible,
)
from saccade.world.dice import Dice, seed_of
from saccade.world.scene import Scene, SceneRelation, Thing

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


def arrange(things: Sequence[Thing], acts: Sequence[SceneRelation]) -> tuple[Thing, ...]:
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


def fits(things: Sequence[Thing], acts: Sequence[SceneRelation], hidden: float) -> bool:
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


def relate(things: Sequence[Thing], acts: Sequence[SceneRelation]) -> tuple[SceneRelation, ...]:
    """Every relation that holds: the acts, what they imply, and what follows from where things are."""
    found = list(acts)
    joined = {frozenset((a.subject, a.object)) for a in acts if a.predicate in ATTACHED}
    for act in acts:
        if act.predicate == "on":
            found.append(SceneRelation(act.object, "under", act.subject))
        elif act.predicate == "riding":
            found += [SceneRelation(act.subject, "on", act.object), SceneRelation(act.object, "under", act.subject)]
        elif act.predicate == "wearing":
            found += [SceneRelation(act.object, "on", act.subject), SceneRelation(act.subject, "under", act.object)]
    # A held or worn thing is where its bearer is: only things with a place of their own are in front or behind.
    lifted = {a.subject for a in acts if a.predicate in ("on", "inside", "riding")}
    lifted |= {a.object for a in acts if a.predicate in ("holding", "wearing")}
    for i, a in enumerate(things):
        for j, b in enumerate(things):
            if i == j or frozenset((i, j)) in joined:
                continue
            across = b.x - a.x
            if across >= BESIDE:
                found += [SceneRelation(i, "left of", j), SceneRelation(j, "right of", i)]
            if i in lifted or j in lifted:
                continue
            if b.depth - a.depth >= APART and abs(across) <= LANE:
                found += [SceneRelation(i, "in front of", j), SceneRelation(j, "behind", i)]
            if abs(across) <= NEAR and abs(b.depth - a.depth) <= SAME_DEPTH:
                found.append(SceneRelation(i, "next to", j))
                if "creature" in KINDS[a.kind].roles and across * a.facing > 0:
                    found.append(SceneRelation(i, "looking at", j))
    return tuple(dict.fromkeys(found))


HELD_OUT_ACTS = ("on", "holding", "riding", "chasing", "pushing")

_COLOURS, _KINDS, _SIZES = tuple(COLOURS), tuple(KINDS), tuple(SIZES)
# One colour of every kind: `novel` shows "a turquoise cube", the others turquoise things and cubes.
HELD_OUT_COLOURS: frozenset[tuple[str, str]] = frozenset(
    (_COLOURS[(7 * i + 4) % len(_COLOURS)], kind) for i, kind in enumerate(KINDS)
)


@cache
def held_out_act(subject: str, predicate: str, thing: str) -> bool:
    """About one in ten (kind, act, kind) triplets is never shown outside `novel`."""
    if predicate not in HELD_OUT_ACTS or not possible(subject, predicate, thing):
        return False
    if predicate == "on" and (subject == "hat" or possible(subject, "riding", thing)):
        return False  # it would come with every hat worn and every ride
    return seed_of("unseen 52", subject, predicate, thing) % 10 == 0


def held_out_acts() -> tuple[tuple[str, str, str], ...]:
    """Every held-out triplet."""
    return tuple((a, p, b) for p in HELD_OUT_ACTS for a in KINDS for b in KINDS if held_out_act(a, p, b))


def is_novel(things: Sequence[Thing], relations: Iterable[SceneRelation]) -> bool:
    """Whether a scene shows any held-out composition."""
    return any((t.colour, t.kind) in HELD_OUT_COLOURS for t in things) or any(
        held_out_act(things[r.subject].kind, r.predicate, things[r.object].kind)
        for r in relations
        if r.predicate in HELD_OUT_ACTS
    )


# Colours that go with kinds: nearly all things of these colours are of one kind …
BIASED_KINDS: dict[str, str] = column("colours", "biased")
BIAS = 0.9  # … where a thing's part in the scene leaves the choice
# … or the kinds of one half have the colours of one half, and those of the other half the others (the rest have any).
HALVES: tuple[tuple[str, ...], tuple[str, ...]] = _KINDS[0:24:3], _KINDS[1:24:3]
HALF_COLOURS: tuple[tuple[str, ...], tuple[str, ...]] = _COLOURS[0::2], _COLOURS[1::2]
Colouring = Literal["any", "biased", "cogent_a", "cogent_b"]


def colours_of(kind: str, colouring: Colouring) -> tuple[str, ...]:
    """The colours that a kind is shown in: where it is of a half, other ones in `cogent_b` than in `cogent_a`."""
    half = next((n for n, kinds in enumerate(HALVES) if kind in kinds), None)
    if half is None or colouring not in ("cogent_a", "cogent_b"):
        return _COLOURS
    return HALF_COLOURS[half if colouring == "cogent_a" else 1 - half]


COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8)
COUNT_WEIGHTS = (1, 5, 12, 20, 22, 16, 12, 7, 5)

ACT_WEIGHTS: dict[str, float] = column("predicates", "weight")
# Sizes of the doer and of what it is done to, so that the act is visible.
ACT_SIZES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = column("predicates", "sizes")


@dataclass(frozen=True)
class Wish:
    """What a scene must have: how many things, and how much of a thing others may hide."""

    least: int = 0
    most: int = 8
    hidden: float = 0.35
    novel: bool = False
    colouring: Colouring = "any"  # how colours go with kinds


def sample_scene(dice: Dice, name: str, wish: Wish | None = None) -> Scene:
    """Draw until a scene fits its frame; novel scenes show a held-out composition, all others none."""
    wish = wish or Wish()
    options = [n for n in COUNTS if wish.least <= n <= wish.most]
    count = dice.weighted(options, [COUNT_WEIGHTS[n] for n in options])
    stage = Scene(
        id=name,
        background=dice.pick(BACKGROUNDS),
        lighting=dice.weighted(LIGHTINGS, tuple(column("lightings", "weight").values())),
        light_from=dice.pick((-1, 1)),
        horizon=dice.between(0.31, 0.4),
        seed=dice.below(1 << 30),
    )
    while True:
        for _ in range(6):
            things, acts = _cast(dice, count, wish.novel)
            if wish.colouring != "any":
                things = _coloured(dice, things, acts, wish.colouring)
            if is_novel(things, acts) != (wish.novel and count > 0):
                continue
            placed = _place(dice, things, acts, wish.hidden)
            if placed is not None:
                return replace(stage, things=placed, relations=relate(placed, acts))
        count = max(count - 1, wish.least, 1) if count else 0


def _cast(dice: Dice, count: int, novel: bool) -> tuple[list[Thing], list[SceneRelation]]:
    """Who is in the scene, and what they do to each other."""
    things: list[Thing] = []
    acts: list[SceneRelation] = []
    if novel and count > 1 and dice.chance(0.5):
        subject, predicate, thing = dice.pick(held_out_acts())
        _add_act(dice, things, acts, predicate, subject, thing)
    elif novel and count:
        colour, kind = dice.pick(sorted(HELD_OUT_COLOURS))
        things.append(replace(_identity(dice, kind), colour=colour))
    while len(things) < count:
        if count - len(things) >= 2 and dice.chance(0.5):
            predicate = dice.weighted(tuple(ACT_WEIGHTS), tuple(ACT_WEIGHTS.values()))
            _add_act(dice, things, acts, predicate)
        else:
            # Often a kind that is there already, so that only attributes and relations tell the two apart.
            again = things and dice.chance(0.3)
            things.append(_identity(dice, dice.pick(things).kind if again else dice.pick(_KINDS)))
    crowd = 3 if count <= 3 else 2 if count <= 5 else 1
    large = 0
    for i, member in enumerate(things):  # a crowd of large things would hide each other
        if member.size == "large":
            large += 1
            if large > crowd:
                things[i] = replace(member, size=dice.pick(("small", "medium")))
    return things, acts


def _coloured(dice: Dice, things: Sequence[Thing], acts: Sequence[SceneRelation], colouring: Colouring) -> list[Thing]:
    """The things with colours that go with their kinds; who acts keeps its kind and changes its colour instead."""
    acting = {n for act in acts for n in (act.subject, act.object)}
    changed = []
    for n, thing in enumerate(things):
        usual = BIASED_KINDS.get(thing.colour, thing.kind)
        if colouring == "biased" and usual != thing.kind and dice.chance(BIAS):
            free = [c for c in _COLOURS if c not in BIASED_KINDS and (c, thing.kind) not in HELD_OUT_COLOURS]
            thing = replace(thing, colour=dice.pick(free)) if n in acting else replace(thing, kind=usual)
        elif thing.colour not in colours_of(thing.kind, colouring):
            allowed = [c for c in colours_of(thing.kind, colouring) if (c, thing.kind) not in HELD_OUT_COLOURS]
            thing = replace(thing, colour=dice.pick(allowed))
        changed.append(thing)
    return changed


def _identity(dice: Dice, kind: str, sizes: tuple[str, ...] = _SIZES) -> Thing:
    colour = dice.pick(_COLOURS)
    return Thing(kind, colour, dice.pick(sizes), dice.pick(MATERIALS), facing=dice.pick((-1, 1)))


@cache
def _subjects(predicate: str) -> tuple[str, ...]:
    return tuple(k for k in _KINDS if _objects(k, predicate))


@cache
def _objects(subject: str, predicate: str) -> tuple[str, ...]:
    return tuple(k for k in _KINDS if possible(subject, predicate, k))


def _add_act(
    dice: Dice, things: list[Thing], acts: list[SceneRelation], predicate: str, subject: str = "", thing: str = ""
) -> None:
    """Two things and what the first does to the second, with sizes that make it visible."""
    subject = subject or dice.pick(_subjects(predicate))
    if predicate == "on" and not thing:  # a ride or a worn hat is sampled as such
        thing = dice.pick(kinds_with("support"))
        subject = dice.pick(kinds_with("stackable"))
    thing = thing or dice.pick(_objects(subject, predicate))
    first, second = ACT_SIZES[predicate]
    a, b = _identity(dice, subject, first), _identity(dice, thing, second)
    if predicate == "inside" and b.size == "medium":
        a = replace(a, size="small")
    if predicate == "wearing":  # a hat fits one size up
        b = replace(b, size="small" if a.size == "medium" else "medium")
    at = len(things)
    things += [a, b]
    acts.append(SceneRelation(at, predicate, at + 1))


def _place(dice: Dice, things: list[Thing], acts: list[SceneRelation], hidden: float) -> tuple[Thing, ...] | None:
    """Try positions one thing (or acting pair) at a time, then the whole."""
    partner = {a.subject: a for a in acts} | {a.object: a for a in acts}
    placed: dict[int, Thing] = {}
    for i in range(len(things)):
        if i in placed:
            continue
        act = partner.get(i)
        members = [i] if act is None else [act.subject, act.object]
        for _ in range(14):
            trial = dict(placed)
            x, depth, facing = dice.between(0.08, 0.92), dice.between(0.0, 1.0), dice.pick((-1, 1))
            for m in members:
                trial[m] = replace(things[m], x=x, depth=depth, facing=facing)
            keys = sorted(trial)
            where = {k: n for n, k in enumerate(keys)}
            some = [
                SceneRelation(where[a.subject], a.predicate, where[a.object])
                for a in acts
                if a.subject in trial and a.object in trial
            ]
            arranged = arrange([trial[k] for k in keys], some)
            if fits(arranged, some, hidden):
                placed = dict(zip(keys, arranged, strict=True))
                break
        else:
            return None
    return tuple(placed[i] for i in range(len(things)))
