"""Seeded draws that come out the same on every machine and Python version.

Only `random.Random.random()` is promised to be stable across Python versions, so every draw is made from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def seed_of(*key: int | str) -> int:
    """A 63-bit seed from a path of numbers and names, e.g. seed_of(0, "train", 17)."""
    text = "/".join(map(str, key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


class Dice:
    """A stream of draws, named by its key."""

    def __init__(self, *key: int | str) -> None:
        self.draw = Random(seed_of(*key)).random

    def below(self, count: int) -> int:
        return int(self.draw() * count)

    def chance(self, probability: float) -> bool:
        return self.draw() < probability

    def between(self, low: float, high: float) -> float:
        """Rounded to four decimals: what a scene stores is exactly what is drawn."""
        return round(low + (high - low) * self.draw(), 4)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.draw() * len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        left = self.draw() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            left -= weight
            if left < 0:
                return option
        return options[-1]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        items = list(options)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items
