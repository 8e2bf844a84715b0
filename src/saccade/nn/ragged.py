"""Items of several lengths, for loops that take the real vectors of some whole items at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Block(NamedTuple):
    """Neighbouring items."""

    items: slice
    rows: slice  # among all real vectors
    start: Int[Tensor, " item+1"]  # where each item's begin within the block, and the end


class Ragged:
    """Where the real vectors of items are."""

    def __init__(self, mask: Bool[Tensor, "item part"]) -> None:
        self.counts = mask.sum(dim=1)
        self.place = mask.flatten().nonzero()[:, 0]
        self._first = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(dim=0)])

    def real(self, vectors: Float[Tensor, "item part dim"]) -> Float[Tensor, "row dim"]:
        """The real vectors, one below the other."""
        return vectors.flatten(0, 1).index_select(0, self.place)

    def blocks(self, items: slice, rows: int) -> Iterator[Block]:
        """Some items in blocks of at most so many vectors, though at least one item."""
        counts, before = self.counts[items].tolist(), int(self._first[items.start])
        for some, own in pieces(counts, rows):
            start = torch.tensor([0, *accumulate(counts[some])], dtype=torch.int32)
            yield Block(_moved(some, items.start), _moved(own, before), start)

    def alike(self, items: slice, few: int) -> list[Int[Tensor, " some"]]:
        """Some items, the longest first, a few at a time: these are of about one length."""
        return list((self.counts[items].argsort(descending=True, stable=True) + items.start).split(few))

    def padded(self, rows: Float[Tensor, "row dim"], items: Int[Tensor, " some"]) -> Float[Tensor, "some part dim"]:
        """Of some items, the longest first, the real vectors, then zeros."""
        counts = self.counts[items, None]
        part = torch.arange(max(1, int(counts[0])))
        place = (self._first[items, None] + part).clamp_(max=max(0, len(rows) - 1))
        shape = (*place.shape, rows.shape[-1])
        found = rows.index_select(0, place.flatten()).view(shape) if len(rows) else rows.new_zeros(shape)
        return found if bool((counts == len(part)).all()) else found.masked_fill_((part >= counts)[..., None], 0.0)


def pieces(sizes: Sequence[int], limit: int) -> Iterator[tuple[slice, slice]]:
    """Neighbouring items of at most `limit` rows together, though at least one: the items and their rows."""
    begin = row = rows = 0
    for item, size in enumerate(sizes):
        if rows and rows + size > limit:
            yield slice(begin, item), slice(row, row + rows)
            begin, row, rows = item, row + rows, 0
        rows += size
    if begin < len(sizes):
        yield slice(begin, len(sizes)), slice(row, row + rows)


def _moved(some: slice, by: int) -> slice:
    return slice(some.start + by, some.stop + by)
