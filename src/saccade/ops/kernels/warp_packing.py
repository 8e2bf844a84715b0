"""How items lie in memory for `finish.cu`: without padding, but for one column after an item of odd length.

Queries come in bins of whole items, as many rows as a warp holds in registers. The context's items keep columns of
their own, from the narrowest to the widest; a thread reads two columns at a time.

Where every vector goes depends on the items' lengths alone. Plans are kept for the last few sets of lengths: whoever
measures a model after every epoch asks with the same sentences and pictures again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops.kernels.packing import assign
from saccade.ops.kernels.tuning import Cut

SLOTS = 8  # items of a bin: as in finish.cu
TALLEST = 7  # tiles of 16 rows: larger bins are hardly fuller
EPSILON = 1e-8
PLANS = 16  # kept


@dataclass(frozen=True)
class Lengths:
    """How many real vectors each item has, on the host."""

    counts: Int[np.ndarray, " item"]
    places: int
    first: bool  # whether they are the first of its places

    @property
    def empty(self) -> list[int]:
        return [int(item) for item in np.flatnonzero(self.counts == 0)]

    @property
    def key(self) -> tuple[bytes, int, bool]:
        return self.counts.tobytes(), self.places, self.first

    @staticmethod
    def of_key(key: tuple[bytes, int, bool]) -> Lengths:
        return Lengths(np.frombuffer(key[0], dtype=np.int64), *key[1:])


def lengths_of(*masks: Bool[Tensor, "item place"]) -> list[Lengths]:
    """Of several masks, waiting for a GPU once."""
    facts = [torch.cat([mask.sum(dim=1), (mask[:, 1:] <= mask[:, :-1]).all().long()[None]]) for mask in masks]
    known = np.split(torch.cat(facts).cpu().numpy(), np.cumsum([len(fact) for fact in facts[:-1]]))
    return [Lengths(fact[:-1], mask.shape[1], bool(fact[-1])) for fact, mask in zip(known, masks, strict=True)]


@dataclass(frozen=True)
class QueryPlan:
    """Query items in bins."""

    rows: Int[Tensor, " row"] | None  # where each packed row is; None: nothing moves
    tiles: int  # of 16 rows in a bin
    start: Int[Tensor, " bin"]
    slot_begin: Int[Tensor, "bin slot_and_one"]
    slot_item: Int[Tensor, "bin slot"]
    starts: list[int]  # `start` on the host, and the end of the last bin


@dataclass(frozen=True)
class ContextPlan:
    """Context items, from the narrowest to the widest."""

    rows: Int[Tensor, " column"] | None
    start: Int[Tensor, " item"]
    length: Int[Tensor, " item"]
    number: Int[Tensor, " item"]
    groups: list[tuple[int, slice]]  # items that take the same number of tiles: which number, and which items


@dataclass(frozen=True)
class Asking:
    vectors: Float[Tensor, "row dim"]
    inverse: Float[Tensor, " row"]  # 1 / |q|
    plan: QueryPlan


@dataclass(frozen=True)
class Asked:
    vectors: Float[Tensor, "column dim"]
    plan: ContextPlan


def pack_queries(
    vectors: Float[Tensor, "item query dim"],
    mask: Bool[Tensor, "item query"],
    lengths: Lengths,
    widest: int,
    good: int = Cut.tiles,
) -> Asking:
    """`widest`: the most tiles of columns that an item of the context takes; `good`: tiles that a warp should have."""
    plan = query_plan(lengths.key, max(1, good // widest), vectors.device)
    packed = _packed(vectors, mask, lengths, plan.rows)
    norms = torch.linalg.vector_norm(packed, dim=1, dtype=torch.float32)
    return Asking(packed, norms.clamp_(min=EPSILON).reciprocal_(), plan)


def pack_context(vectors: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"], lengths: Lengths) -> Asked:
    plan = context_plan(lengths.key, vectors.device)
    return Asked(_packed(vectors, mask, lengths, plan.rows), plan)


@lru_cache(maxsize=PLANS)
def query_plan(key: tuple[bytes, int, bool], most: int, device: torch.device) -> QueryPlan:
    lengths = Lengths.of_key(key)
    tiles = _tiles(lengths.counts[lengths.counts > 0], most)
    item, length = assign(lengths.counts, 16 * tiles, SLOTS)
    ends = np.cumsum(length, axis=1)
    starts = np.concatenate([[0], np.cumsum(ends[:, -1])])
    order = item[length > 0]
    facts = np.concatenate([np.zeros_like(item[:, :1]), ends, item, starts[:-1, None]], axis=1).astype(np.int32)
    there = torch.from_numpy(facts).to(device)
    begins, items, start = (
        part.contiguous() for part in (there[:, : SLOTS + 1], there[:, SLOTS + 1 : -1], there[:, -1])
    )
    return QueryPlan(_rows(lengths, order, lengths.counts[order], device), tiles, start, begins, items, starts.tolist())


@lru_cache(maxsize=PLANS)
def context_plan(key: tuple[bytes, int, bool], device: torch.device) -> ContextPlan:
    lengths = Lengths.of_key(key)
    tiles = -(-lengths.counts // 8)
    number = np.argsort(tiles.astype(np.int16), kind="stable")
    number = number[tiles[number] > 0]
    tiles, own = tiles[number], lengths.counts[number]
    sizes = own + own % 2
    begin = np.cumsum(sizes) - sizes
    sizes[-1] += -(begin[-1] + sizes[-1]) % 8  # a matrix product likes such widths
    start, length, numbers = torch.from_numpy(np.stack([begin, own, number]).astype(np.int32)).to(device)
    bounds = np.flatnonzero(np.diff(tiles, prepend=0, append=0))
    groups = [(int(tiles[a]), slice(int(a), int(b))) for a, b in itertools.pairwise(bounds)]
    return ContextPlan(_rows(lengths, number, sizes, device), start, length, numbers, groups)


def _tiles(lengths: Int[np.ndarray, " item"], most: int) -> int:
    """How many tiles of 16 rows a bin has: as full as can be, of few tiles, so that many warps run side by side."""
    longest, mean = int(lengths.max()), float(lengths.mean())
    least = -(-longest // 16)
    sizes = [16 * tiles for tiles in range(least, max(least, min(most, TALLEST)) + 1)]
    if longest == int(lengths.min()):
        full = [size // longest * longest / size for size in sizes]
    else:  # items of many lengths fill nearly anything that holds some of them
        full = [1 - 0.5 * (mean / size) ** 2 for size in sizes]
    return max(zip(full, (-size for size in sizes), strict=True))[1] // -16


def _rows(
    lengths: Lengths, order: Int[np.ndarray, " chosen"], sizes: Int[np.ndarray, " chosen"], device: torch.device
) -> Int[Tensor, " row"] | None:
    """Items one after the other, in so many rows each, its own and the last of them again: where each row is.

    Among all places where items have their real vectors first, else among the real ones.
    """
    counts, places = lengths.counts, lengths.places
    whole = len(order) == len(counts) and bool((np.stack([sizes, counts]) == places).all())
    if whole and bool((np.diff(order) > 0).all()):
        return None
    first = order * places if lengths.first else (np.cumsum(counts) - counts)[order]
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    within = np.minimum(within, np.repeat(counts[order] - 1, sizes))
    return torch.from_numpy(np.repeat(first, sizes) + within).to(device)


def _packed(
    vectors: Float[Tensor, "item place dim"],
    mask: Bool[Tensor, "item place"],
    lengths: Lengths,
    rows: Int[Tensor, " row"] | None,
) -> Float[Tensor, "row dim"]:
    if rows is None:
        return vectors.flatten(0, 1)
    if not lengths.first:
        rows = mask.flatten().nonzero().squeeze(1)[rows]
    return vectors.flatten(0, 1).index_select(0, rows)
