"""The order in which a streamed log is learned from: blocks shuffled, and the rows of some of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Int


class PlainSampler(Protocol):
    """What the trainer's sampler says of a run."""

    batch_size: int
    seed: int
    rank: int
    world_size: int
    steps_per_epoch: int


def order(count: int, *key: int) -> Int[np.ndarray, " item"]:
    """The numbers below `count` in an order that follows from the key alone, with every version of NumPy."""
    keys = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    return np.argsort(keys, kind="stable")


class BlockSampler:
    """In every epoch the blocks come in another order; so many of them that `shuffle` rows are reached make a window,
    whose rows are shuffled. No more than two windows are read at a time, and no state but the step's number is needed.
    """

    def __init__(self, plain: PlainSampler, blocks: Sequence[int], shuffle: int) -> None:
        self.plain, self.shuffle = plain, shuffle
        self.sizes = np.asarray(blocks, dtype=np.int64)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.steps_per_epoch = plain.steps_per_epoch
        self._epoch = -1
        self._windows: list[Int[np.ndarray, " block"]] = []
        self._ends = np.zeros(0, dtype=np.int64)
        self._rows: dict[int, Int[np.ndarray, " row"]] = {}

    def _begin(self, epoch: int) -> None:
        blocks = order(len(self.sizes), self.plain.seed, epoch)
        windows: list[list[int]] = [[]]
        held = 0
        for block in blocks.tolist():
            if held >= self.shuffle:
                windows.append([])
                held = 0
            windows[-1].append(block)
            held += int(self.sizes[block])
        self._epoch, self._windows = epoch, [np.array(window) for window in windows]
        self._ends = np.cumsum([int(self.sizes[window].sum()) for window in self._windows])
        self._rows = {}

    def _window(self, number: int) -> Int[np.ndarray, " row"]:
        if number not in self._rows:
            blocks = self._windows[number]
            rows = np.concatenate([self.first[block] + np.arange(self.sizes[block]) for block in blocks])
            rows = rows[order(len(rows), self.plain.seed, self._epoch, number + 1)]
            self._rows = {**{n: kept for n, kept in self._rows.items() if n == number - 1}, number: rows}
        return self._rows[number]

    def indices(self, step: int) -> list[int]:
        """This rank's rows at `step`, counted from the start of training."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._begin(epoch)
        start = position * self.plain.batch_size
        after = min(start + self.plain.batch_size, int(self.sizes.sum()))
        share = (after - start) // self.plain.world_size
        start += self.plain.rank * share
        found: list[int] = []
        while share > 0:
            number = int(np.searchsorted(self._ends, start, side="right"))
            begin = int(self._ends[number - 1]) if number else 0
            part = self._window(number)[start - begin : start - begin + share]
            found += part.tolist()
            start, share = start + len(part), share - len(part)
        return found
