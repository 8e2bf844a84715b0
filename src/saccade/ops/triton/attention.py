"""Attended similarity by Triton kernels, as one differentiable function.

A side that is compared more than once is packed once. Scores are made by one matrix product for some thousand query
rows at a time, in a buffer that is used again, so that memory does not grow with the number of queries. For the
backward pass packed vectors and the table are kept, nothing per pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.ops.form import EPSILON, MAX_UNSHIFTED_SHARPNESS, AttentionForm, Context, Queries
from saccade.ops.packing import Bins, fill_empty, gather, gram, pack
from saccade.ops.triton import BIN, MAX_STATIC_SCORES, backward, forward

REDUCED = (torch.bfloat16, torch.float16)
INSIDE_REDUCED = tl.bfloat16  # products inside a tile, where those of the vectors are of 16 bits
WARPS = 4  # of a program
GRADIENT_TABLES = 4  # of the size of the scores, alive at once in the backward pass


@dataclass(frozen=True)
class Tiling:
    """How the kernels cut all pairs into tiles."""

    places: int = BIN  # of a bin, on either side
    slots: int = 16  # items that a bin can have
    wide: int = 64  # rows of the product that sums within query items: `slots` or, on a Hopper GPU, rather 64
    stages: int = 2  # reads that are under way at once
    loop: int = 4  # bins of queries that one program goes through
    rows: int = 2048  # query rows whose scores are in memory at once


INFERENCE = Tiling()
LEARNING = Tiling(loop=8, rows=16384)  # a batch in one piece


def triton_similarity(
    queries: Queries,
    context: Context,
    form: AttentionForm,
    dtype: torch.dtype,
    budget: int | None = None,
    tiling: Tiling | None = None,
) -> Float[Tensor, "item other"]:
    """`ops.attended_similarity` in float32; `dtype` is the precision of the scores' matrix product.

    Without a `tiling`, the default; scores take at most `budget` bytes at a time.
    """
    learning = torch.is_grad_enabled() and (queries.vectors.requires_grad or context.vectors.requires_grad)
    tiling = tiling or (LEARNING if learning else INFERENCE)
    if budget is not None:
        row = context.mask.numel() * dtype.itemsize * (GRADIENT_TABLES if learning else 1)
        tiling = replace(tiling, rows=max(tiling.places, min(tiling.rows, budget // max(1, row))))
    static = learning and queries.mask.numel() * context.mask.numel() <= MAX_STATIC_SCORES
    result: Tensor = _Packed.apply(  # type: ignore[no-untyped-call]
        queries.vectors, context.vectors, queries.mask, context.mask, form, dtype, tiling, static
    )
    return result


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        context: Tensor,
        query_mask: Tensor,
        context_mask: Tensor,
        form: AttentionForm,
        dtype: torch.dtype,
        tiling: Tiling,
        static: bool,
    ) -> Tensor:
        asking = pack_queries(queries, query_mask, tiling, dtype, static)
        asked = pack_context(context, context_mask, tiling, dtype, static)
        table = pooled_similarity(asking, asked, form, tiling)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(queries, context, table)
            ctx.options = asking, asked, form, tiling
        return table

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, context, table = ctx.saved_tensors
        return (*gradients(queries, context, table, gradient, *ctx.options), *[None] * 6)


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
    static: bool = False,
) -> PackedQueries:
    """`dtype`: the precision of the scores' matrix product, the vectors' own unless given; `static` as in `pack`."""
    bins = pack(mask, tiling.places, tiling.slots, static=static)
    norms = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float32).flatten()
    inverse = norms[bins.source].clamp(min=EPSILON).reciprocal()
    return PackedQueries(bins, gather(vectors, bins, dtype or vectors.dtype), inverse, len(vectors))


def pack_context(
    vectors: Float[Tensor, "item part dim"],
    mask: Bool[Tensor, "item part"],
    tiling: Tiling,
    dtype: torch.dtype | None = None,
    static: bool = False,
) -> PackedContext:
    dtype = dtype or vectors.dtype
    bins = pack(mask, tiling.places, tiling.slots, align=8, static=static)
    products = gram(vectors, bins, torch.bfloat16 if dtype in REDUCED else torch.float32)
    return PackedContext(bins, gather(vectors, bins, dtype), products, len(vectors))


def pooled_similarity(
    queries: PackedQueries, context: PackedContext, form: AttentionForm, tiling: Tiling
) -> Float[Tensor, "item other"]:
    """S of every query item with every context item, in float32."""
    out = torch.empty(queries.items, context.items, dtype=torch.float32, device=queries.vectors.device)
    if len(queries.bins) and len(context.bins):
        for first, last, scores in score_blocks(queries, context, tiling):
            _launch_forward(scores, first, last, queries, context, form, tiling, out)
    nobody, nothing = (bins.lengths == 0 if bins.empty is None else bins.empty for bins in (queries.bins, context.bins))
    return fill_empty(out, form, nobody, nothing, queries.bins.lengths)


def score_blocks(
    queries: PackedQueries, context: PackedContext, tiling: Tiling
) -> Iterator[tuple[int, int, Float[Tensor, "row part"]]]:
    """First and last bin of some queries, and their scores with the whole context, in a buffer that is used again."""
    starts, wide = queries.bins.starts, context.bins.rows
    buffer: Tensor | None = None
    step = max(1, tiling.rows // tiling.places)
    for first in range(0, len(queries.bins), step):
        last = min(first + step, len(queries.bins))
        some = queries.vectors[starts[first] : starts[last]]
        if buffer is None:
            most = max(starts[min(b + step, len(queries.bins))] - starts[b] for b in range(0, len(queries.bins), step))
            buffer = some.new_empty(most, -(-wide // 16) * 16)[:, :wide]  # rows begin where wide reads may
        yield first, last, torch.mm(some, context.vectors[:wide].T, out=buffer[: len(some)])


def constants(queries: PackedQueries, context: PackedContext, form: AttentionForm, tiling: Tiling) -> dict[str, Any]:
    """What every kernel is compiled for."""
    soft = abs(form.sharpness) <= MAX_UNSHIFTED_SHARPNESS  # or exp needs a maximum, and makes much of rounding
    bounded = form.normaliser not in ("clipped", "none") and soft
    shift = form.choice == "max" or abs(form.pool_sharpness) > MAX_UNSHIFTED_SHARPNESS
    asks_queries = form.normaliser == "softmax" or form.pool == "max" or shift  # a maximum over each slot's places
    asks_context = form.choice == "max" or not bounded
    reduced = queries.vectors.dtype in REDUCED and soft
    return {
        "NORMALISER": form.normaliser,
        "CHOICE": form.choice,
        "POOL": form.pool,
        "BQ": tiling.places,
        "BC": tiling.places,
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


def _launch_forward(
    scores: Tensor,
    first: int,
    last: int,
    queries: PackedQueries,
    context: PackedContext,
    form: AttentionForm,
    tiling: Tiling,
    out: Tensor,
) -> None:
    asking, asked = queries.bins, context.bins
    grid = (len(asked), -(-(last - first) // tiling.loop))
    forward.attend_scores[grid](
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
        form.sharpness,
        form.slope,
        form.pool_sharpness,
        **constants(queries, context, form, tiling),
        ALIGN=8,
        LOOP=tiling.loop,
        STAGES=tiling.stages,
        num_warps=WARPS,
    )


def gradients(
    queries: Float[Tensor, "item query dim"],
    context: Float[Tensor, "other part dim"],
    table: Float[Tensor, "item other"],
    gradient: Float[Tensor, "item other"],
    asking: PackedQueries,
    asked: PackedContext,
    form: AttentionForm,
    tiling: Tiling,
) -> tuple[Float[Tensor, "item query dim"], Float[Tensor, "other part dim"]]:
    """Of the queries and the context, from that of the table of similarities."""
    rows, wide, width = asking.bins.rows, asked.bins.rows, len(asked.bins) * asked.bins.size
    into_queries = torch.zeros_like(queries, dtype=torch.float32)
    into_context = torch.zeros_like(context, dtype=torch.float32)
    if not rows or not wide:
        return into_queries.to(queries.dtype), into_context.to(context.dtype)
    gradient, vectors = gradient.float(), asking.vectors
    options = constants(asking, asked, form, tiling)
    by_context = torch.zeros(wide, context.shape[-1], dtype=torch.float32, device=context.device)
    by_gram = torch.zeros(asked.gram.shape, dtype=torch.float32, device=context.device)
    by_query = torch.empty(rows, context.shape[-1], dtype=torch.float32, device=context.device)
    for first, last, scores in score_blocks(asking, asked, tiling):
        some = slice(asking.bins.starts[first], asking.bins.starts[last])
        d_scores = scores.new_empty(len(scores), scores.stride(0))[:, :wide]
        left, right = (scores.new_empty(len(scores), width) for _ in range(2))
        part = torch.empty(len(asked.bins), len(scores), dtype=torch.float32, device=scores.device)
        backward.score_gradient[(len(asked.bins), last - first)](
            scores,
            scores.stride(0),
            asked.gram,
            asking.bins.start,
            asking.bins.fill,
            asking.bins.segment,
            asking.bins.item,
            asking.bins.lengths,
            asking.inverse,
            asked.bins.start,
            asked.bins.fill,
            asked.bins.segment,
            asked.bins.item,
            table,
            gradient,
            gradient.stride(0),
            gradient.stride(1),
            table.shape[1],
            d_scores,
            left,
            right,
            left.stride(0),
            part,
            part.stride(0),
            first,
            some.start,
            form.sharpness,
            form.slope,
            form.pool_sharpness,
            **options,
            ALIGN=8,
            num_warps=WARPS,
            num_stages=1,
        )
        by_query[some] = torch.mm(d_scores, asked.vectors[:wide])
        by_context += torch.mm(d_scores.T, vectors[some])
        if form.choice == "attend":
            own = vectors[some].float()
            squared = own.square().sum(dim=1).clamp(min=EPSILON**2)
            by_query[some] -= (part.sum(dim=0) / squared)[:, None] * own
            sides = (side.view(len(scores), len(asked.bins), asked.bins.size) for side in (left, right))
            by_gram += torch.bmm(
                *(side.permute(*turn) for side, turn in zip(sides, ((1, 2, 0), (1, 0, 2)), strict=True))
            )
    into_queries.flatten(0, 1).index_add_(0, asking.bins.row_source[:rows], by_query)
    into_context.flatten(0, 1).index_add_(0, asked.bins.row_source[:wide], by_context)
    if form.choice == "attend":
        place = asked.bins.source.flatten()
        own = context.flatten(0, 1).index_select(0, place).view(*asked.bins.source.shape, -1).float()
        by_gram *= (asked.bins.segment[:, :, None] == asked.bins.segment[:, None]) & (asked.bins.segment[:, None] >= 0)
        into_context.flatten(0, 1).index_add_(0, place, torch.bmm(by_gram, own).flatten(0, 1))
    return into_queries.to(queries.dtype), into_context.to(context.dtype)
