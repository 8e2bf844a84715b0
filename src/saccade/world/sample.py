"""Drawing scenes: how many things, which, and what they do. Everything else follows from the layout.

Which compositions are kept out of every split but `novel`: each of their parts is seen, never the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from saccade.world.catalogue import BACKGROUNDS, COLOURS, KINDS, LIGHTINGS, MATERIALS, SIZES, kinds_with, possible
from saccade.world.dice import Dice, seed_of
from saccade.world.layout import fits, relate, settle
from saccade.world.scene import Relation, Scene, Thing

HELD_OUT_ACTS = ("on", "holding", "riding", "chasing", "pushing")

_COLOURS = tuple(COLOURS)

# One colour of every kind: `novel` shows "a turquoise cube", the others turquoise things and cubes.
HELD_OUT_COLOURS: frozenset[tuple[str, str]] = frozenset(
    (_COLOURS[(7 * i + 4) % len(_COLOURS)], kind) for i, kind in enumerate(KINDS)
)


@cache
def held_out_act(subject: str, predicate: str, thing: str) -> bool:
    """About one in ten (kind, act, kind) triplets is never seen outside `novel`."""
    if predicate not in HELD_OUT_ACTS or not possible(subject, predicate, thing):
        return False
    if predicate == "on" and (subject == "hat" or possible(subject, "riding", thing)):
        return False  # it would come with every hat worn and every ride
    return seed_of("unseen 52", subject, predicate, thing) % 10 == 0


def held_out_acts() -> tuple[tuple[str, str, str], ...]:
    """Every held-out triplet."""
    return tuple((a, p, b) for p in HELD_OUT_ACTS for a in KINDS for b in KINDS if held_out_act(a, p, b))


def is_novel(things: Sequence[Thing], relations: Iterable[Relation]) -> bool:
    """Whether a scene shows any held-out composition."""
    return any((t.colour, t.kind) in HELD_OUT_COLOURS for t in things) or any(
        held_out_act(things[r.subject].kind, r.predicate, things[r.object].kind)
        for r in relations
        if r.predicate in HELD_OUT_ACTS
    )


COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8)
COUNT_WEIGHTS = (1, 5, 12, 20, 22, 16, 12, 7, 5)

ACT_WEIGHTS = {
    "on": 3.0,
    "inside": 2.0,
    "holding": 2.5,
    "wearing": 1.5,
    "riding": 2.0,
    "chasing": 3.0,
    "pushing": 1.5,
}
# Sizes of the doer and of what it is done to, so that the act can be seen.
ACT_SIZES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "on": (("small", "medium"), ("medium", "large")),
    "inside": (("small", "medium"), ("medium", "large")),
    "holding": (("medium", "large"), ("small",)),
    "wearing": (("medium", "large"), ("small", "medium")),
    "riding": (("small",), ("medium", "large")),
    "chasing": (("small", "medium"), ("small", "medium")),
    "pushing": (("small", "medium"), ("small", "medium")),
}
_COLOURS, _KINDS, _SIZES = tuple(COLOURS), tuple(KINDS), tuple(SIZES)


@dataclass(frozen=True)
class Wish:
    """What a scene must have: how many things, and how much of a thing others may hide."""

    least: int = 0
    most: int = 8
    hidden: float = 0.35
    novel: bool = False


def sample_scene(dice: Dice, name: str, wish: Wish | None = None) -> Scene:
    """Draw until a scene fits its frame; novel scenes show a held-out composition, all others none."""
    wish = wish or Wish()
    options = [n for n in COUNTS if wish.least <= n <= wish.most]
    count = dice.weighted(options, [COUNT_WEIGHTS[n] for n in options])
    stage = Scene(
        id=name,
        background=dice.pick(BACKGROUNDS),
        lighting=dice.weighted(LIGHTINGS, (5, 2, 2, 3)),
        light_from=dice.pick((-1, 1)),
        horizon=dice.between(0.31, 0.4),
        seed=dice.below(1 << 30),
    )
    while True:
        for _ in range(6):
            things, acts = _cast(dice, count, wish.novel)
            if is_novel(things, acts) != (wish.novel and count > 0):
                continue
            placed = _place(dice, things, acts, wish.hidden)
            if placed is not None:
                return replace(stage, things=placed, relations=relate(placed, acts))
        count = max(count - 1, wish.least, 1) if count else 0


def _cast(dice: Dice, count: int, novel: bool) -> tuple[list[Thing], list[Relation]]:
    """Who is in the scene, and what they do to each other."""
    things: list[Thing] = []
    acts: list[Relation] = []
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
            things.append(_identity(dice, _another_kind(dice, things)))
    crowd = 3 if count <= 3 else 2 if count <= 5 else 1
    large = 0
    for i, member in enumerate(things):  # a crowd of large things would hide each other
        if member.size == "large":
            large += 1
            if large > crowd:
                things[i] = replace(member, size=dice.pick(("small", "medium")))
    return things, acts


def _another_kind(dice: Dice, things: list[Thing]) -> str:
    """Often a kind that is there already, so that only attributes and relations tell the two apart."""
    return dice.pick(things).kind if things and dice.chance(0.3) else dice.pick(_KINDS)


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
    dice: Dice, things: list[Thing], acts: list[Relation], predicate: str, subject: str = "", thing: str = ""
) -> None:
    """Two things and what the first does to the second, with sizes that let it be seen."""
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
    acts.append(Relation(at, predicate, at + 1))


def _place(dice: Dice, things: list[Thing], acts: list[Relation], hidden: float) -> tuple[Thing, ...] | None:
    """Try positions one thing (or acting pair) at a time, then the whole."""
    order = list(range(len(things)))
    partner = {a.subject: a for a in acts} | {a.object: a for a in acts}
    placed: dict[int, Thing] = {}
    for i in order:
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
                Relation(where[a.subject], a.predicate, where[a.object])
                for a in acts
                if a.subject in trial and a.object in trial
            ]
            settled = settle([trial[k] for k in keys], some)
            if fits(settled, some, hidden):
                placed = dict(zip(keys, settled, strict=True))
                break
        else:
            return None
    return tuple(placed[i] for i in order)
