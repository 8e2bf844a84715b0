"""Which compositions are kept out of every split but `novel`: each of their parts is seen, never the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from saccade.world.catalogue import COLOURS, KINDS, possible
from saccade.world.dice import seed_of
from saccade.world.scene import Relation, Thing

HELD_OUT_ACTS = ("on", "holding", "riding", "chasing", "pushing")

_COLOURS = tuple(COLOURS)

# One colour of every kind: a novel world shows "a pink cube" where the others show pink things and cubes.
HELD_OUT_COLOURS: frozenset[tuple[str, str]] = frozenset(
    (_COLOURS[(7 * i + 3) % len(_COLOURS)], kind) for i, kind in enumerate(KINDS)
)


@cache
def held_out_act(subject: str, predicate: str, thing: str) -> bool:
    """About one in ten (kind, act, kind) triplets is never seen outside `novel`."""
    return predicate in HELD_OUT_ACTS and seed_of("held out", subject, predicate, thing) % 10 == 0


def held_out_acts() -> tuple[tuple[str, str, str], ...]:
    """Every held-out triplet that the world can show."""
    return tuple(
        (a, predicate, b)
        for predicate in HELD_OUT_ACTS
        for a in KINDS
        for b in KINDS
        if possible(a, predicate, b)
        and held_out_act(a, predicate, b)
        and not (predicate == "on" and (possible(a, "riding", b) or a == "hat"))
    )


def is_novel(things: Sequence[Thing], relations: Iterable[Relation]) -> bool:
    """Whether a scene shows any held-out composition."""
    return any((t.colour, t.kind) in HELD_OUT_COLOURS for t in things) or any(
        held_out_act(things[r.subject].kind, r.predicate, things[r.object].kind)
        for r in relations
        if r.predicate in HELD_OUT_ACTS
    )
