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
from jaxtyping import Float
from torch import Tensor

from saccade.ops.form import EPSILON, MAX_UNSHIFTED_SHARPNESS, REDUCED, AttentionForm, Context, Queries
from saccade.ops.packing import Bins, fill_empty, gather, gather_places, gram, pack
from saccade.ops.triton import BIN, MAX_STATIC_SCORES
from saccade.ops.triton.attention_kernels import attend_scores, score_gradient

INSIDE_REDUCED = tl.bfloat16  # products inside a tile, where those of the vectors are of 16 bits
WARPS = 4  # of a program
ALIGN = 8  # columns of scores begin at a multiple of this: a kernel reads several numbers at once
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
        packed_queries = _pack_queries(queries, query_mask, tiling, dtype, static)
        packed_context = _pack_context(context, context_mask, tiling, dtype, static)
        table = _table(packed_queries, packed_context, form, tiling)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(queries, context, table)
            ctx.options = packed_queries, packed_context, form, tiling
        return table

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, context, table = ctx.saved_tensors
        return (*_gradients(queries, context, table, gradient, *ctx.options), *[None] * 6)


@dataclass(frozen=True)
class _PackedSide:
    bins: Bins
    vectors: Float[Tensor, "row dim"]
    size: Float[Tensor, "bin place"] | Float[Tensor, "bin place place"]  # queries: 1 / |q|; context: Gram matrices


def _pack_queries(queries: Tensor, mask: Tensor, tiling: Tiling, dtype: torch.dtype, static: bool) -> _PackedSide:
    bins = pack(mask, tiling.places, tiling.slots, static=static)
    norms = torch.linalg.vector_norm(queries, dim=-1, dtype=torch.float32).flatten()
    return _PackedSide(bins, gather(queries, bins, dtype), norms[bins.source].clamp(min=EPSILON).reciprocal())


def _pack_context(context: Tensor, mask: Tensor, tiling: Tiling, dtype: torch.dtype, static: bool) -> _PackedSide:
    bins = pack(mask, tiling.places, tiling.slots, align=ALIGN, static=static)
    products = gram(context, bins, torch.bfloat16 if dtype in REDUCED else torch.float32)
    return _PackedSide(bins, gather(context, bins, dtype), products)


def _table(
    queries: _PackedSide, context: _PackedSide, form: AttentionForm, tiling: Tiling
) -> Float[Tensor, "item other"]:
    """S of every query item with every context item, in float32."""
    query_bins, context_bins = queries.bins, context.bins
    out = queries.vectors.new_empty(len(query_bins.lengths), len(context_bins.lengths), dtype=torch.float32)
    if len(query_bins) and len(context_bins):
        options = _constants(queries, context, form, tiling)
        for first, last, scores in _score_blocks(queries, context, tiling):
            attend_scores[len(context_bins), -(-(last - first) // tiling.loop)](
                *_arguments(scores, first, queries, context, form),
                out,
                *out.stride(),
                last,
                **options,
                LOOP=tiling.loop,
                STAGES=tiling.stages,
            )
    nobody, nothing = (bins.lengths == 0 if bins.empty is None else bins.empty for bins in (query_bins, context_bins))
    return fill_empty(out, form, nobody, nothing, query_bins.lengths)


def _score_blocks(
    queries: _PackedSide, context: _PackedSide, tiling: Tiling
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


def _constants(queries: _PackedSide, context: _PackedSide, form: AttentionForm, tiling: Tiling) -> dict[str, Any]:
    """What both kernels are compiled for."""
    soft = abs(form.sharpness) <= MAX_UNSHIFTED_SHARPNESS  # or exp needs a maximum, and makes much of rounding
    bounded = form.normaliser not in ("clipped", "none") and soft
    shift = form.choice == "max" or abs(form.pool_sharpness) > MAX_UNSHIFTED_SHARPNESS
    query_maximum = form.normaliser == "softmax" or form.pool == "max" or shift  # a maximum over each slot's places
    context_maximum = form.choice == "max" or not bounded
    reduced = queries.vectors.dtype in REDUCED and soft
    return {
        "NORMALISER": form.normaliser,
        "CHOICE": form.choice,
        "POOL": form.pool,
        "PLACES": tiling.places,
        "SLOTS": tiling.slots,
        "Q_WIDE": tiling.wide,
        "Q_USED": _round(queries.bins.used_slots) if query_maximum else 0,
        "C_USED": _round(context.bins.used_slots) if context_maximum else 0,
        "BOUNDED": bounded,
        "SHIFT": shift,
        "INSIDE": INSIDE_REDUCED if reduced else tl.float32,
        "NATIVE": queries.vectors.is_cuda and torch.version.hip is None,
        "ALIGN": ALIGN,
        "num_warps": WARPS,
    }


def _round(slots: int) -> int:
    """Few different counts, so that few kernels are compiled."""
    return max(4, 1 << (slots - 1).bit_length())


def _arguments(
    scores: Tensor, first: int, queries: _PackedSide, context: _PackedSide, form: AttentionForm
) -> tuple[Any, ...]:
    """What both kernels are given, of the scores of the bins of queries from `first` on."""
    query_bins, context_bins = queries.bins, context.bins
    return (
        *(scores, scores.stride(0), first, query_bins.starts[first], context.size),
        *(query_bins.start, query_bins.fill, query_bins.segment, query_bins.item, queries.size),
        *(context_bins.start, context_bins.fill, context_bins.segment, context_bins.item),
        *(form.sharpness, form.slope, form.pool_sharpness),
    )


def _gradients(
    queries: Float[Tensor, "item query dim"],
    context: Float[Tensor, "other part dim"],
    table: Float[Tensor, "item other"],
    gradient: Float[Tensor, "item other"],
    packed_queries: _PackedSide,
    packed_context: _PackedSide,
    form: AttentionForm,
    tiling: Tiling,
) -> tuple[Float[Tensor, "item query dim"], Float[Tensor, "other part dim"]]:
    """Of the queries and the context, from that of the table of similarities."""
    query_bins, context_bins = packed_queries.bins, packed_context.bins
    rows, wide, width = query_bins.rows, context_bins.rows, len(context_bins) * context_bins.size
    into_queries = torch.zeros_like(queries, dtype=torch.float32)
    into_context = torch.zeros_like(context, dtype=torch.float32)
    if not rows or not wide:
        return into_queries.to(queries.dtype), into_context.to(context.dtype)
    gradient, vectors = gradient.float(), packed_queries.vectors
    options = _constants(packed_queries, packed_context, form, tiling)
    by_context = torch.zeros(wide, context.shape[-1], dtype=torch.float32, device=context.device)
    by_gram = torch.zeros(packed_context.size.shape, dtype=torch.float32, device=context.device)
    by_query = torch.empty(rows, context.shape[-1], dtype=torch.float32, device=context.device)
    for first, last, scores in _score_blocks(packed_queries, packed_context, tiling):
        some = slice(query_bins.starts[first], query_bins.starts[last])
        d_scores = scores.new_empty(len(scores), scores.stride(0))[:, :wide]
        left, right = (scores.new_empty(len(scores), width) for _ in range(2))
        part = torch.empty(len(context_bins), len(scores), dtype=torch.float32, device=scores.device)
        score_gradient[len(context_bins), last - first](
            *_arguments(scores, first, packed_queries, packed_context, form),
            query_bins.lengths,
            *(table, gradient, *gradient.stride(), table.shape[1]),
            *(d_scores, left, right, left.stride(0), part, part.stride(0)),
            **options,
            num_stages=1,
        )
        by_query[some] = torch.mm(d_scores, packed_context.vectors[:wide])
        by_context += torch.mm(d_scores.T, vectors[some])
        if form.choice == "attend":
            own = vectors[some].float()
            squared = own.square().sum(dim=1).clamp(min=EPSILON**2)
            by_query[some] -= (part.sum(dim=0) / squared)[:, None] * own
            left, right = (side.view(len(scores), len(context_bins), context_bins.size) for side in (left, right))
            by_gram += torch.bmm(left.permute(1, 2, 0), right.permute(1, 0, 2))
    into_queries.flatten(0, 1).index_add_(0, query_bins.row_source[:rows], by_query)
    into_context.flatten(0, 1).index_add_(0, context_bins.row_source[:wide], by_context)
    if form.choice == "attend":
        by_place = torch.bmm(by_gram.mul_(context_bins.together), gather_places(context, context_bins, torch.float32))
        into_context.flatten(0, 1).index_add_(0, context_bins.source.flatten(), by_place.flatten(0, 1))
    return into_queries.to(queries.dtype), into_context.to(context.dtype)
