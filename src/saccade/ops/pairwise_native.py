"""All-pairs attended similarity on a CPU, with what follows the product in a loop of our own.

A core takes some groups of query items, multiplies them with as many groups of context items as make a product that
runs at full speed, and lets the loop go over each pair of groups: no item is padded to another group's length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.ops.cores import on_every_core
from saccade.ops.native.attention import NativeAttention
from saccade.ops.sorted_items import Cut, SortedItems, pool_cosines, sorted_items

if TYPE_CHECKING:
    from saccade.ops.pairwise import AttentionForm

_CONTEXT = 1152  # vectors on either side of a product: enough for it to run at full speed
_QUERIES = 1200
_FULL = 0.1  # of those: from here on a group of items may end early
_ROUND = 16  # a product has a multiple of it in columns: faster by a tenth


@dataclass(frozen=True)
class _Asked:
    """Some items of the context, of one length."""

    place: slice  # of the items, in the order of length
    rows: slice  # of their vectors, in the product
    triangle: Float[Tensor, "other part height"]  # of their Gram matrices
    there: Float[Tensor, "other part"]


@dataclass(frozen=True)
class _Asking:
    """Some query items of one length, position by position."""

    place: slice
    first: int  # of their columns in the product
    norm: Float[Tensor, "query item"]
    absent: Bool[Tensor, "query item"] | None  # where they are padding, if any is


Context = tuple[Float[Tensor, "row dim"], list[_Asked]]


def native_similarity(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    form: AttentionForm,
    native: NativeAttention,
    budget: int,
) -> Float[Tensor, "item other"]:
    """As `similarity_on_cpu`, which says what `budget` means."""
    cores = torch.get_num_threads()
    numbers = budget // queries.element_size() // cores
    wide = min(_QUERIES, max(1, numbers // (4 * queries.shape[-1])))
    tall = min(_CONTEXT, max(1, numbers // (4 * wide)))
    asking = sorted_items(queries, query_mask, wide, _FULL, native.lanes)
    asked = sorted_items(context, context_mask, tall, _FULL)
    ready: list[Context] = []
    on_every_core(partial(_prepare, asked, cuts, native, ready) for cuts in _bundles(asked.cuts, tall))
    table = asking.vectors.new_empty(len(asked.order), len(asking.order))
    bundles = list(_bundles(asking.cuts, wide))
    shares = -(-2 * cores // max(1, len(bundles))) if cores > 1 else 1
    on_every_core(
        partial(_ask, asking, cuts, ready[share::shares], form, native, table)
        for cuts in bundles
        for share in range(shares)
    )
    return table.T[asking.order.argsort()][:, asked.order.argsort()]


def _bundles(cuts: Sequence[Cut], limit: int) -> Iterator[list[Cut]]:
    """Neighbouring groups of at most `limit` vectors together (or one group)."""
    bundle: list[Cut] = []
    size = 0
    for place, longest in cuts:
        count = (place.stop - place.start) * longest
        if bundle and size + count > limit:
            yield bundle
            bundle, size = [], 0
        bundle.append((place, longest))
        size += count
    if bundle:
        yield bundle


def _prepare(items: SortedItems, cuts: list[Cut], native: NativeAttention, ready: list[Context]) -> None:
    """The context's vectors, one below the other, and their Gram matrices."""
    vectors, there = items.rows(cuts)
    groups, row = [], 0
    for (place, _), real in zip(cuts, there, strict=True):
        rows = slice(row, row + real.numel())
        some = vectors[rows].view(*real.shape, -1)
        groups.append(_Asked(place, rows, native.triangle(torch.bmm(some, some.mT)), real.float()))
        row = rows.stop
    ready.append((vectors, groups))


def _ask(
    items: SortedItems,
    cuts: list[Cut],
    context: Sequence[Context],
    form: AttentionForm,
    native: NativeAttention,
    table: Float[Tensor, "other item"],
) -> None:
    """Into the table: the similarities of some query items with some context items."""
    if not context:
        return
    vectors, groups = _asking(items, cuts)
    space = vectors.new_empty(max(len(below) for below, _ in context) * len(vectors) + native.lanes)
    for below, asked in context:
        scores = space[: len(below) * len(vectors)].view(len(below), len(vectors))
        torch.mm(below, vectors.T, out=scores)
        for other in asked:
            for some in groups:
                match = native.match(scores[other.rows], some.first, other.triangle, other.there, some.norm)
                table[other.place, some.place] = pool_cosines(match, some.absent, form)


def _asking(items: SortedItems, cuts: list[Cut]) -> tuple[Float[Tensor, "column dim"], list[_Asking]]:
    counts = [(place.stop - place.start) * longest for place, longest in cuts]
    vectors, there = items.rows(cuts, by_part=True, spare=-sum(counts) % _ROUND)
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    groups, first = [], 0
    for (place, _), real, count in zip(cuts, there, counts, strict=True):
        norm, whole = norms[first : first + count].view(real.shape), bool(real.all())
        groups.append(_Asking(place, first, norm, None if whole else ~real))
        first += count
    return vectors, groups
