"""All-pairs attended similarity on a CPU, in loops of our own.

A core takes some groups of query items, as columns of a matrix, and goes with them over one context item after the
other: no item is padded to another group's length, and no score leaves the core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops.cores import on_every_core
from saccade.ops.native.attention import NativeAttention
from saccade.ops.sorted_items import Cut, SortedItems, pool_cosines, sorted_items

if TYPE_CHECKING:
    from saccade.ops.pairwise import AttentionForm

_CONTEXT = 600  # context vectors of a job, at most
_QUERIES = 600  # its queries: their columns are not far from a core's cache
_JOBS = 4  # of a core, at least: one that was held up has less to do
_FULL = 0.1  # of those: from here on a group of items may end early


@dataclass(frozen=True)
class _Asked:
    """Some items of the context, of one length."""

    items: slice  # in the order of length
    place: Int[Tensor, "other part"]  # of their vectors
    triangles: Float[Tensor, "other part height"]  # of their Gram matrices


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
    asking = sorted_items(queries, query_mask, wide, _FULL, native.lanes)
    asked = sorted_items(context, context_mask, _CONTEXT, _FULL)
    each = max(_CONTEXT, context_mask.numel() // cores)
    prepared = on_every_core(partial(_asked, asked, cuts, native) for cuts in _bundles(asked.cuts, each))
    ready = [group for groups in prepared for group in groups]
    table = asking.vectors.new_empty(len(asking.order), len(asked.order))
    bundles = sorted(_bundles(asking.cuts, wide), key=_size, reverse=True)  # the largest first: cores end together
    shares = -(-_JOBS * cores // max(1, len(bundles))) if cores > 1 else 1
    most = max(1, min(-(-len(context) // shares), numbers // (4 * wide)))
    on_every_core(
        partial(_ask, asking, cuts, asked, some, form, native, table) for cuts in bundles for some in _runs(ready, most)
    )
    return table


def _bundles(cuts: Sequence[Cut], limit: int) -> Iterator[list[Cut]]:
    """Neighbouring groups of at most `limit` vectors together (or one group)."""
    bundle: list[Cut] = []
    for cut in cuts:
        if bundle and _size([*bundle, cut]) > limit:
            yield bundle
            bundle = []
        bundle.append(cut)
    if bundle:
        yield bundle


def _size(cuts: Sequence[Cut]) -> int:
    return sum((place.stop - place.start) * longest for place, longest in cuts)


def _asked(items: SortedItems, cuts: list[Cut], native: NativeAttention) -> list[_Asked]:
    vectors, places = items.vectors.flatten(0, 1), map(items.places, cuts)
    return [
        _Asked(some, place, native.triangles(vectors, place)) for (some, _), place in zip(cuts, places, strict=True)
    ]


def _runs(ready: Sequence[_Asked], most: int) -> Iterator[list[_Asked]]:
    """Neighbours of at most so many items together (or one of them)."""
    for _, run in groupby(ready, key=lambda asked: (asked.items.stop - 1) // most):
        yield list(run)


def _ask(
    items: SortedItems,
    cuts: list[Cut],
    others: SortedItems,
    ready: Sequence[_Asked],
    form: AttentionForm,
    native: NativeAttention,
    table: Float[Tensor, "item other"],
) -> None:
    """Into the table: the similarities of some query items with some context items."""
    places = [items.places(cut).T for cut in cuts]  # position by position: sums over these run along memory
    queries = native.columns(items.vectors.flatten(0, 1), torch.cat([place.flatten() for place in places]))
    begin, end = ready[0].items.start, ready[-1].items.stop
    matches = [table.new_empty(end - begin, *place.shape) for place in places]
    context = others.vectors.flatten(0, 1)
    for asked in ready:
        here = slice(asked.items.start - begin, asked.items.stop - begin)
        native.match(context, asked.place, asked.triangles, queries, [match[here] for match in matches])
    for match, place, (some, _) in zip(matches, places, cuts, strict=True):
        absent = place < 0
        pooled = pool_cosines(match, absent if bool(absent.any()) else None, form)
        table[items.order[some, None], others.order[begin:end]] = pooled.T
