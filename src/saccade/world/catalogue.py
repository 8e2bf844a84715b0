"""What there is in the world, and who can do what to whom: the tables of `catalogue.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.core.config import load_table

Point = tuple[float, float]
Rgb = tuple[float, float, float]


def column(table: str, field: str) -> dict[str, Any]:
    """Name → field, of the rows that have it; lists as tuples, words that mean the same one by one."""
    return {name: _plain(field, row[field]) for name, row in _TABLES[table].items() if field in row}


def _plain(field: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_plain(field, each) for each in value)
    if field == "roles":
        return frozenset(value.split())
    return tuple(value.split("/")) if field in ("words", "passives") else value


_TABLES = load_table(Path(__file__).with_name("catalogue.yaml"))


@dataclass(frozen=True)
class Kind:
    """A kind of toy. Lengths are in units of its own height, x forward from its middle, y up from its foot."""

    name: str
    height: float  # of a medium one, in units of a medium cube
    width: float  # over its height
    roles: frozenset[str]
    top: float = 1.0  # where something put on it rests
    head: Point | None = None  # where a hat sits
    hand: Point | None = None  # where a held thing's middle is
    seat: Point | None = None  # where a rider sits


KINDS: dict[str, Kind] = {
    name: Kind(name, **{field: _plain(field, value) for field, value in row.items() if field != "words"})
    for name, row in _TABLES["kinds"].items()
}
COLOURS: dict[str, tuple[int, int, int]] = column("colours", "rgb")
SIZES: dict[str, float] = column("sizes", "scale")
MATERIALS, BACKGROUNDS, LIGHTINGS = (tuple(_TABLES[table]) for table in ("materials", "backgrounds", "lightings"))

MEDIUM_CUBE = 0.225  # height in the picture, nearest to the viewer

PREDICATES: tuple[str, ...] = tuple(_TABLES["predicates"])
ACTS = PREDICATES[PREDICATES.index("inside") :]
_ROLES: dict[str, tuple[str, str]] = column("predicates", "between")


def possible(subject: str, predicate: str, thing: str) -> bool:
    """Whether the world ever shows `subject predicate thing` (kinds), so that a false sentence is never absurd."""
    if predicate == "under":
        return possible(thing, "on", subject)
    if predicate == "wearing":
        return "creature" in KINDS[subject].roles and thing == "hat"
    if predicate == "looking at":
        return "creature" in KINDS[subject].roles
    if predicate == "on" and (possible(subject, "riding", thing) or possible(thing, "wearing", subject)):
        return True  # a rider is on its mount, a worn hat on its wearer
    if predicate not in _ROLES:
        return True
    first, second = _ROLES[predicate]
    return first in KINDS[subject].roles and second in KINDS[thing].roles


def kinds_with(role: str) -> tuple[str, ...]:
    return tuple(name for name, kind in KINDS.items() if role in kind.roles)
