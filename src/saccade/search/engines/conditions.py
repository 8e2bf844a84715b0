"""Conditions on a row's columns, `year > 2020 AND (camera = 'X100' OR NOT label IN ('a', 'b'))`, read into a tree.

Lance reads SQL itself. Other engines must not be handed a sentence that a stranger may have typed: what is read here is
a small part of SQL, and each engine says the tree in its own terms, with values as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from saccade.core.errors import SaccadeError, did_you_mean

Value: TypeAlias = str | float | int | bool
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "null"]
MAX_LENGTH, MAX_DEPTH = 2000, 20
_TOKEN = re.compile(
    r"""\s*(?: '(?P<text>(?:[^']|'')*)' | (?P<number>-?\d+(?:\.\d+)?) | (?P<word>[A-Za-z_]\w*)
    | (?P<mark><=|>=|!=|<>|[=<>(),]) )""",
    re.VERBOSE,
)
_KEYWORDS = ("AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE")


@dataclass(frozen=True)
class Comparison:
    column: str
    operator: Operator
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Both:
    """All of them, or with `any` one of them."""

    parts: tuple[Condition, ...]
    any: bool = False


@dataclass(frozen=True)
class Not:
    part: Condition


Condition: TypeAlias = "Comparison | Both | Not"


def read_condition(where: str, columns: Sequence[str]) -> Condition | None:
    """None of an empty one. Raises: SaccadeError if it cannot be read, or names a column that is not there."""
    if not where.strip():
        return None
    if len(where) > MAX_LENGTH:
        raise SaccadeError(f"--where has {len(where):,} characters, at most {MAX_LENGTH:,} are read")
    reader = _Reader(where, columns)
    found = reader.either(0)
    if reader.at < len(reader.tokens):
        raise reader.refused()
    return found


class _Reader:
    def __init__(self, where: str, columns: Sequence[str]) -> None:
        self.where, self.columns, self.at = where, columns, 0
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while where[place:].strip():
            found = _TOKEN.match(where, place)
            if found is None:
                raise self.refused(where[place:].strip())
            assert found.lastgroup is not None
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()

    def refused(self, near: str | None = None) -> SaccadeError:
        near = near or (self.tokens[self.at][1] if self.at < len(self.tokens) else "its end")
        return SaccadeError(
            f'--where "{self.where}" cannot be read at {near[:40]}: comparisons (=, !=, <, >, IN, IS NULL) of columns '
            "with numbers and 'texts', joined by AND, OR, NOT, were expected"
        )

    def take(self, *wanted: str) -> bool:
        """Go on if this mark or keyword comes next."""
        kind, said = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind in ("mark", "word") and said.upper() in wanted:
            self.at += 1
            return True
        return False

    def either(self, depth: int) -> Condition:
        return self._joined("OR", self.both, depth)

    def both(self, depth: int) -> Condition:
        return self._joined("AND", self.one, depth)

    def _joined(self, word: str, part: object, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise self.refused("so many brackets")
        found = [part(depth)]  # type: ignore[operator]
        while self.take(word):
            found.append(part(depth))  # type: ignore[operator]
        return found[0] if len(found) == 1 else Both(tuple(found), word == "OR")

    def one(self, depth: int) -> Condition:
        if self.take("NOT"):
            if depth > MAX_DEPTH:
                raise self.refused("so many negations")
            return Not(self.one(depth + 1))
        if self.take("("):
            found = self.either(depth + 1)
            if not self.take(")"):
                raise self.refused()
            return found
        return self.comparison()

    def comparison(self) -> Condition:
        kind, column = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind != "word" or column.upper() in _KEYWORDS:
            raise self.refused()
        if column not in self.columns:
            raise SaccadeError(f'--where: there is no column "{column}"{did_you_mean(column, self.columns)}')
        self.at += 1
        negated = self.take("NOT")
        if self.take("IN"):
            if not self.take("("):
                raise self.refused()
            values = [self.value()]
            while self.take(","):
                values.append(self.value())
            if not self.take(")"):
                raise self.refused()
            found: Condition = Comparison(column, "in", tuple(values))
            return Not(found) if negated else found
        if negated:
            raise self.refused()
        if self.take("IS"):
            negated = self.take("NOT")
            if not self.take("NULL"):
                raise self.refused()
            found = Comparison(column, "null")
            return Not(found) if negated else found
        for mark in ("=", "!=", "<>", "<=", ">=", "<", ">"):
            if self.take(mark):
                operator: Operator = "!=" if mark == "<>" else mark  # type: ignore[assignment]
                return Comparison(column, operator, (self.value(),))
        raise self.refused()

    def value(self) -> Value:
        kind, said = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind not in ("text", "number") and said.upper() not in ("TRUE", "FALSE"):
            raise self.refused()
        self.at += 1
        if kind == "text":
            return said.replace("''", "'")
        if kind == "number":
            return float(said) if "." in said else int(said)
        return said.upper() == "TRUE"
