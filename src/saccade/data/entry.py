"""A mapping from somebody's JSON, asked for its fields: each comes in the type expected, or a sentence names it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float32

from saccade.errors import SaccadeError


@dataclass(frozen=True)
class Entry:
    """`where` says in sentences which file and which place in it: "annotations.json, images[3]"."""

    values: dict[str, Any]
    where: str

    @classmethod
    def of(cls, value: Any, where: str) -> Entry:
        if not isinstance(value, dict):
            raise SaccadeError(f"{where} is {_short(value)}, a mapping was expected")
        return cls(value, where)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str) -> str:
        return as_text(self.values.get(key), f'{self.where}: "{key}"')

    def whole(self, key: str, least: int = 0) -> int:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 62:
            self._refuse(key, f"a whole number of at least {least}" if least else "a whole number")
        return value

    def number(self, key: str) -> float:
        return as_number(self.values.get(key), f'{self.where}: "{key}"')

    def list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if not isinstance(value, list):
            self._refuse(key, "a list")
        return value

    def numbers(self, key: str, names: tuple[str, ...]) -> tuple[float, ...]:
        """As many numbers as there are names for them: ("x", "y", "width", "height")."""
        values = self.list(key)
        if len(values) != len(names):
            counted = f'{self.where}: "{key}" has {len(values)} numbers'
            raise SaccadeError(f"{counted}, [{', '.join(names)}] was expected")
        return tuple(as_number(v, f"{self.where}: {key}[{n}]") for n, v in enumerate(values))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(as_text(v, f"{self.where}: {key}[{n}]") for n, v in enumerate(self.list(key)))

    def entries(self, key: str) -> Iterator[Entry]:
        return (Entry.of(v, f"{self.where}.{key}[{n}]") for n, v in enumerate(self.list(key)))

    def entry(self, key: str) -> Entry:
        return Entry.of(self.values.get(key), f"{self.where}.{key}")

    def _refuse(self, key: str, expected: str) -> NoReturn:
        raise SaccadeError(f'{self.where}: "{key}" is {_short(self.values.get(key))}, {expected} was expected')


def as_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SaccadeError(f"{where} is {_short(value)}, text was expected")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise SaccadeError(f"{where} holds half a character (a lone surrogate)")
    return value


def as_number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15 or math.isnan(value):
        raise SaccadeError(f"{where} is {_short(value)}, a number was expected")
    return float(value)


def pixel_box(
    corners: tuple[float, float, float, float], width: int, height: int, where: str, slack: float = 2.0
) -> Float32[np.ndarray, " 4"]:
    """x1, y1, x2, y2 in pixels as parts of the picture. Less than `slack` pixels outside is rounding and is cut off."""
    x1, y1, x2, y2 = corners
    if x1 < -slack or y1 < -slack or x2 > width + slack or y2 > height + slack:
        raise SaccadeError(f"{where}: the box {_numbers(corners)} leaves the picture of {width} × {height} pixels")
    if x2 < x1 or y2 < y1:
        raise SaccadeError(f"{where}: the box {_numbers(corners)} ends before it begins")
    box = np.array([x1 / width, y1 / height, x2 / width, y2 / height], dtype=np.float32)
    return np.clip(box, 0.0, 1.0)


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"


def _short(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, int) and abs(value) >= 1 << 62:
        return "a number of many digits"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
