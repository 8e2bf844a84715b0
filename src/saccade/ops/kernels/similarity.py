"""Packed vectors in, similarities out: how the kernels are called.

    asking, asked = pack_queries(words, mask, tiling), pack_context(regions, mask, tiling)
    pooled_similarity(asking, asked, form)    S of every pair of items: SCAN, MaxSim, GSMN's and HGR's matching
    query_match(asking, asked, form)          R of every query with every context item, for callers that pool themselves
    attention_tiles(asking, asked, form)      α, some query bins at a time, for callers that go on (IMRAM's steps)

A side that is compared more than once is packed once. Scores are made by one matrix product for some thousand query
rows at a time, in a buffer that is used again, so that memory does not grow with the number of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.ops.kernels import forward
from saccade.ops.kernels.packing import Bins, fill_empty, gather, gram, pack
from saccade.ops.kernels.tuning import Tiling
from saccade.ops.pairwise import AttentionForm

EPSILON = 1e-8  # as in the plain form
LARGE = 30.0  # a sharpness up to which exp needs no maximum: exp(±4 · 30 / 2) is a float32
REDUCED = (torch.bfloat16, torch.float16)
INSIDE_REDUCED = tl.bfloat16  # products inside a tile, where those of the vectors are of 16 bits


@dataclass(frozen=True)
class PackedQueries:
    bins: Bins
    vectors: Float[Tensor, "row dim"]
    inverse: Float[Tensor, "bin place"]  # 1 / |q|
    items: int


@dataclass(frozen=True)
class PackedContext:
    bins: Bins
    vectors: Float[Tensor, "row dim"]
    gram: Float[Tensor, "bin place place"]
    items: int


def pack_queries(
    vectors: Float[Tensor, "item query dim"],
    mask: Bool[Tensor, "item query"],
    tiling: Tiling,
    dtype: torch.dtype | None = None,
    still: bool = False,
) -> PackedQueries:
    """`dtype`: the precision of the scores' matrix product, the vectors' own unless given; `still` as in `pack`."""
    bins = pack(mask, tiling.queries, tiling.slots, still=still)
    norms = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float32).flatten()
    inverse = norms[bins.source].clamp(min=EPSILON).reciprocal()
    return PackedQueries(bins, gather(vectors, bins, dtype or vectors.dtype), inverse, len(vectors))


def pack_context(
    vectors: Float[Tensor, "item part dim"],
    mask: Bool[Tensor, "item part"],
    tiling: Tiling,
    dtype: torch.dtype | None = None,
    still: bool = False,
) -> PackedContext:
    dtype = dtype or vectors.dtype
    bins = pack(mask, tiling.context, tiling.slots, align=8, still=still)
    products = gram(vectors, bins, torch.bfloat16 if dtype in REDUCED else torch.float32)
    return PackedContext(bins, gather(vectors, bins, dtype), products, len(vectors))


def pooled_similarity(
    queries: PackedQueries, context: PackedContext, form: AttentionForm, tiling: Tiling
) -> Float[Tensor, "item other"]:
    """S of every query item with every context item, in float32."""
    out = torch.empty(queries.items, context.items, dtype=torch.float32, device=queries.vectors.device)
    if len(queries.bins) and len(context.bins):
        for first, last, scores in score_blocks(queries, context, tiling):
            _finish(scores, first, last, queries, context, form, tiling, out, "pooled")
    nobody, nothing = (bins.lengths == 0 if bins.empty is None else bins.empty for bins in (queries.bins, context.bins))
    return fill_empty(out, form, nobody, nothing, queries.bins.lengths)


def query_match(
    queries: PackedQueries, context: PackedContext, form: AttentionForm, tiling: Tiling
) -> Float[Tensor, "row other"]:
    """R of every packed query row (`queries.bins.source` says whose it is) with every context item."""
    out = torch.zeros(queries.bins.rows, context.items, dtype=torch.float32, device=queries.vectors.device)
    for first, last, scores in score_blocks(queries, context, tiling):
        _finish(scores, first, last, queries, context, form, tiling, out, "match")
    return out


def attention_tiles(
    queries: PackedQueries, context: PackedContext, form: AttentionForm, tiling: Tiling
) -> Iterator[tuple[slice, Float[Tensor, "row part"]]]:
    """Which packed query rows, and their weights α over all packed context rows (zero where nobody is).

    The weights times the packed vectors of a context item are what its queries attend to. The buffer is used again:
    take what you need before the next tile is asked for.
    """
    if form.choice == "max":
        raise ValueError("a query that takes its best context vector alone has no weights")
    out: Tensor | None = None
    for first, last, scores in score_blocks(queries, context, tiling):
        rows = slice(queries.bins.starts[first], queries.bins.starts[last])
        if out is None:
            out = torch.zeros_like(scores)
        _finish(scores, first, last, queries, context, form, tiling, out, "weights", first_out=rows.start)
        yield rows, out[: len(scores), : context.bins.rows]


def score_blocks(
    queries: PackedQueries, context: PackedContext, tiling: Tiling
) -> Iterator[tuple[int, int, Float[Tensor, "row part"]]]:
    """First and last bin of some queries, and their scores with the whole context, in a buffer that is used again."""
    starts, wide = queries.bins.starts, context.bins.rows
    buffer: Tensor | None = None
    step = max(1, tiling.rows // tiling.queries)
    for first in range(0, len(queries.bins), step):
        last = min(first + step, len(queries.bins))
        some = queries.vectors[starts[first] : starts[last]]
        if buffer is None:
            most = max(starts[min(b + step, len(queries.bins))] - starts[b] for b in range(0, len(queries.bins), step))
            buffer = some.new_empty(most, -(-wide // 16) * 16)[:, :wide]  # rows begin where wide reads may
        yield first, last, torch.mm(some, context.vectors[:wide].T, out=buffer[: len(some)])


def constants(queries: PackedQueries, context: PackedContext, form: AttentionForm, tiling: Tiling) -> dict[str, Any]:
    """What every kernel is compiled for."""
    bounded = form.normaliser not in ("clipped", "none") and abs(form.sharpness) <= LARGE
    shift = form.choice == "max" or abs(form.pool_sharpness) > LARGE
    asks_queries = form.normaliser == "softmax" or form.pool == "max" or shift  # a maximum over each slot's places
    asks_context = form.choice == "max" or not bounded
    reduced = queries.vectors.dtype in REDUCED and abs(form.sharpness) <= LARGE  # or exp would make much of rounding
    return {
        "NORMALISER": form.normaliser,
        "CHOICE": form.choice,
        "POOL": form.pool,
        "BQ": tiling.queries,
        "BC": tiling.context,
        "Q_SLOTS": tiling.slots,
        "Q_WIDE": tiling.wide,
        "C_SLOTS": tiling.slots,
        "Q_USED": _round(queries.bins.used_slots) if asks_queries else 0,
        "C_USED": _round(context.bins.used_slots) if asks_context else 0,
        "BOUNDED": bounded,
        "SHIFT": shift,
        "INSIDE": INSIDE_REDUCED if reduced else tl.float32,
        "NATIVE": queries.vectors.is_cuda and torch.version.hip is None,
    }


def _round(slots: int) -> int:
    """Few different counts, so that few kernels are compiled."""
    return max(4, 1 << (slots - 1).bit_length())


def launch(tiling: Tiling) -> dict[str, int]:
    """How a kernel is started."""
    return {"num_warps": tiling.warps}


def _finish(
    scores: Tensor,
    first: int,
    last: int,
    queries: PackedQueries,
    context: PackedContext,
    form: AttentionForm,
    tiling: Tiling,
    out: Tensor,
    what: str,
    first_out: int = 0,
) -> None:
    asking, asked = queries.bins, context.bins
    grid = (len(asked), -(-(last - first) // tiling.loop))
    forward.finish_scores[grid](
        scores,
        scores.stride(0),
        context.gram,
        asking.start,
        asking.fill,
        asking.segment,
        asking.item,
        queries.inverse,
        asked.start,
        asked.fill,
        asked.segment,
        asked.item,
        out,
        out.stride(0),
        out.stride(1),
        first,
        last,
        asking.starts[first],
        first_out,
        form.sharpness,
        form.slope,
        form.pool_sharpness,
        **constants(queries, context, form, tiling),
        WHAT=what,
        ALIGN=8,
        LOOP=tiling.loop,
        STAGES=tiling.stages,
        **launch(tiling),
    )
