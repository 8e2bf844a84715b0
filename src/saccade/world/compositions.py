"""Which compositions are kept out of every split but `novel`: each of their parts is seen, never the whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from saccade.world.catalogue import COLOURS, KINDS, possible
from saccade.world.dice import seed_of
from saccade.world.scene import Relation, Thing

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
