"""Items of unequal length put into full tiles: a bin holds whole items, and nearly all of its places are taken.

A kernel works on tiles of `size` places. Captions of 8 to 18 words, each padded to a tile of its own, would leave most
of it empty; here the longest item that still fits goes into the bin next, and bins come out 97–100 % full. Only the
counts of each length go through Python: a pattern of lengths that fits is used as often as the counts allow, so that
25,000 captions are packed in a millisecond or two.

Bins lie one after the other in memory without their empty places (`start`, `fill`), so that a matrix product over all
of them wastes nothing either; `align` rounds a bin's beginning up, where a kernel reads several numbers at once.
Places that are nobody's hold a copy of some real vector: finite, and struck out by `segment` = −1.

Lengths are the GPU's to know. Whoever would rather not wait for it packs `static`: every item gets as many places as
the mask is wide, so that where it goes depends on shapes alone, and some of its places are nobody's. Small batches in
training are packed so, and their steps can be captured as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops.form import AttentionForm

NOBODY = -1


@dataclass(frozen=True)
class Places:
    """Which places of which bin belong to which item."""

    size: int  # places in a bin
    slots: int  # items that a bin can have: a power of two, at least 16
    used_slots: int  # the most that any bin has
    item: Int[Tensor, "bin slot"]  # the item's number, NOBODY for a slot that is not used
    start: Int[Tensor, " bin"]  # the bin's first row
    fill: Int[Tensor, " bin"]  # rows that are somebody's
    starts: list[int]  # `start` on the host, and the end of the last bin
    taken: Bool[Tensor, "bin place"]
    segment: Int[Tensor, "bin place"]  # the slot that the place belongs to, if it is taken
    whose: Int[Tensor, "bin place"]  # the slot's item
    within: Int[Tensor, "bin place"]  # which of the item's places
    row: Int[Tensor, " place"]  # where it is among packed rows; behind them, if it is not taken

    @staticmethod
    def of(lengths: Int[np.ndarray, " item"], size: int, slots: int, align: int, device: torch.device) -> Places:
        item, length = assign(lengths, size, slots)
        offset = np.cumsum(length, axis=1) - length
        fill = length.sum(axis=1)
        starts = np.zeros(len(fill) + 1, dtype=np.int64)
        np.cumsum(-(-fill // align) * align, out=starts[1:])
        columns = [item, np.where(length > 0, offset, size), fill[:, None], starts[:-1, None]]
        facts = torch.from_numpy(np.concatenate(columns, axis=1)).to(device, non_blocking=True)
        items, offsets, fills, start = facts[:, :slots], facts[:, slots:-2].contiguous(), facts[:, -2], facts[:, -1]
        place = torch.arange(size, device=device)
        segment = torch.searchsorted(offsets, place.expand(len(fill), size).contiguous(), right=True).sub_(1)
        segment.clamp_(min=0)
        taken = place < fills[:, None]
        return Places(
            size=size,
            slots=slots,
            used_slots=int((length > 0).sum(axis=1).max(initial=1)),
            item=items.int().contiguous(),
            start=start.int(),
            fill=fills.int(),
            starts=starts.tolist(),
            taken=taken,
            segment=segment,
            whose=items.gather(1, segment).clamp_(min=0),
            within=(place - offsets.gather(1, segment)).clamp_(min=0, max=max(0, int(lengths.max(initial=0)) - 1)),
            row=torch.where(taken, start[:, None] + place, starts[-1] + size).flatten(),
        )


@dataclass(frozen=True)
class Bins(Places):
    """Where every real vector of some items lies; `segment` is NOBODY where there is none."""

    source: Int[Tensor, "bin place"]  # the place's row among the items' rows, one after the other, padding and all
    row_source: Int[Tensor, " row"]  # the same for each packed row, with `size` rows more at the end to read into
    lengths: Int[Tensor, " item"]  # how many real vectors each item has
    empty: list[int] | None  # items without a single real vector: in no bin; None: `lengths` says it

    def __len__(self) -> int:
        return len(self.start)

    @property
    def rows(self) -> int:
        return self.starts[-1]

    @property
    def together(self) -> Bool[Tensor, "bin place place"]:
        """Which two places of a bin belong to the same item."""
        return (self.segment[:, :, None] == self.segment[:, None]) & (self.segment[:, None] >= 0)


@cache
def _static(items: int, places: int, size: int, slots: int, align: int, device: torch.device) -> Places:
    """Kept for good: CUDA graphs read it where it is."""
    return Places.of(np.full(items, places), size, slots, align, device)


def pack(mask: Bool[Tensor, "item place"], size: int, slots: int = 16, align: int = 1, static: bool = False) -> Bins:
    """Bins of `size` places for the real vectors of each item; no item may have more than `size` of them.

    `static`: an item has all of its mask's places, and nothing waits for a GPU.
    """
    counts, width = mask.sum(dim=1), mask.shape[1]
    lengths = None if static else counts.cpu().numpy()
    if lengths is None:
        places = _static(len(mask), width, size, slots, align, mask.device)
    else:
        places = Places.of(lengths, size, slots, align, mask.device)
    there, total = places.taken, places.starts[-1]
    order = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)  # real places first: masks may have holes
    source = places.whose * width + order[places.whose, places.within]
    if lengths is None:
        there = there & (places.within < counts[places.whose])
        source = torch.where(there, source, mask.flatten().to(torch.uint8).argmax() if len(there) else 0)
    else:
        source = torch.where(there, source, source[:, :1])
    row_source = source.flatten()
    if len(there):
        row_source = source[:1, :1].expand(1, total + size + 1).flatten().scatter(0, places.row, row_source)
    segment = torch.where(there, places.segment, NOBODY).int()
    empty = None if lengths is None else np.flatnonzero(lengths == 0).tolist()
    return Bins(
        **(vars(places) | {"segment": segment}),
        source=source,
        row_source=row_source[: total + size],
        lengths=counts,
        empty=empty,
    )


def assign(
    lengths: Int[np.ndarray, " item"], size: int, slots: int
) -> tuple[Int[np.ndarray, "bin slot"], Int[np.ndarray, "bin slot"]]:
    """Which items share a bin, and their lengths: the longest that fits goes in next."""
    order = np.argsort(-lengths.astype(np.int16), kind="stable")  # of 16 bits it is a radix sort
    left = np.bincount(lengths, minlength=size + 1)
    if len(left) > size + 1:
        raise ValueError(f"an item has {len(left) - 1} vectors, a bin holds {size}")
    first = len(lengths) - np.cumsum(left)  # where the items of each length begin in `order`
    left[0] = 0
    items, sizes = [], []
    while left.any():
        pattern, room = list[int](), size  # the lengths of one full bin
        for fits in np.flatnonzero(left)[::-1].tolist():
            count = min(int(left[fits]), room // fits, slots - len(pattern))
            pattern += [fits] * count
            room -= fits * count
        uses = {length: pattern.count(length) for length in set(pattern)}
        copies = min(int(left[length]) // count for length, count in uses.items())
        item, length = np.full((copies, slots), NOBODY), np.zeros((copies, slots), dtype=np.int64)
        for slot, chosen in enumerate(pattern):
            item[:, slot] = order[first[chosen] : first[chosen] + copies]
            length[:, slot] = chosen
            first[chosen] += copies
            left[chosen] -= copies
        items.append(item)
        sizes.append(length)
    if not items:
        return np.zeros((0, slots), dtype=np.int64), np.zeros((0, slots), dtype=np.int64)
    return np.concatenate(items), np.concatenate(sizes)


def gather(vectors: Float[Tensor, "item place dim"], bins: Bins, dtype: torch.dtype) -> Float[Tensor, "row dim"]:
    """The packed rows, and `size` more after the last."""
    return vectors.flatten(0, 1).index_select(0, bins.row_source).to(dtype)


def gather_places(
    vectors: Float[Tensor, "item place dim"], bins: Bins, dtype: torch.dtype
) -> Float[Tensor, "bin place dim"]:
    """The same bin by bin, with a vector at every place."""
    return vectors.flatten(0, 1).index_select(0, bins.source.flatten()).view(*bins.source.shape, -1).to(dtype)


def gram(vectors: Float[Tensor, "item place dim"], bins: Bins, dtype: torch.dtype) -> Float[Tensor, "bin place place"]:
    """Each bin's products of two vectors of the same item; zero between items and where nobody is."""
    own = gather_places(vectors, bins, dtype)
    return torch.bmm(own, own.transpose(1, 2)).mul_(bins.together)


def fill_empty(
    out: Float[Tensor, "item other"],
    form: AttentionForm,
    nobody: Sequence[int] | Bool[Tensor, " item"],
    nothing: Sequence[int] | Bool[Tensor, " other"],
    lengths: Int[Tensor, " item"],
) -> Float[Tensor, "item other"]:
    """What pools of nothing are, as in the plain form: items without queries, and queries that find no context.

    Which these are: their numbers, or a mask where a GPU knows it alone.
    """
    counts = lengths.float()[:, None]  # where every query's R is 0
    pooled = counts.log() / form.pool_sharpness if form.pool == "logsumexp" else counts * 0
    if isinstance(nothing, Tensor):
        out = torch.where(nothing, pooled, out)
    elif len(nothing):
        out[:, nothing] = pooled
    least = -torch.inf if form.pool in ("logsumexp", "max") else 0.0
    if isinstance(nobody, Tensor):
        out = out.masked_fill_(nobody[:, None], least)
    elif len(nobody):
        out[nobody] = least
    return out
