"""All-pairs attended similarity on a CPU, in loops of our own.

A core takes some groups of query items, as columns of a matrix, and goes with them over one context item after the
other. Items that ask are padded to the length of their group, those that are asked not at all, and no score leaves the
core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.ops.cores import on_every_core, ranges
from saccade.ops.native.attention import Context, NativeAttention
from saccade.ops.sorted_items import Cut, SortedItems, pool_cosines, sorted_items

if TYPE_CHECKING:
    from saccade.ops.pairwise import AttentionForm

_QUERIES = 600  # of a core at a time: their columns are not far from its cache
_FULL = 0.1  # of those: from here on a group of items may end early
_JOBS = 4  # of a core, at least: one that was held up has less to do


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
    asked = native.context(context.contiguous(), context_mask)
    table = asking.vectors.new_empty(len(queries), len(context))
    bundles = sorted(_bundles(asking.cuts, wide), key=_size, reverse=True)  # the largest first: cores end together
    shares = -(-_JOBS * cores // max(1, len(bundles))) if cores > 1 else 1
    shares = max(shares, -(-len(context) // max(1, numbers // (4 * wide))))
    on_every_core(
        partial(_ask, asking, cuts, asked, others, form, native, table)
        for cuts in bundles
        for others in ranges(len(context), shares)
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


def _ask(
    items: SortedItems,
    cuts: list[Cut],
    asked: Context,
    others: range,
    form: AttentionForm,
    native: NativeAttention,
    table: Float[Tensor, "item other"],
) -> None:
    """Into the table: the similarities of some query items with some context items."""
    places = [items.places(cut).T for cut in cuts]  # position by position: sums over these run along memory
    queries = native.columns(items.vectors.flatten(0, 1), torch.cat([place.flatten() for place in places]))
    matches = [table.new_empty(len(others), *place.shape) for place in places]
    native.match(asked, others.start, queries, matches)
    for match, place, (some, _) in zip(matches, places, cuts, strict=True):
        absent = place < 0
        pooled = pool_cosines(match, absent if bool(absent.any()) else None, form)
        table[items.order[some], others.start : others.stop] = pooled.T
