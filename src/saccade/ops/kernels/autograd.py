"""The kernels as one differentiable function: the forward pass keeps packed vectors and the table, nothing per pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.ops.kernels import backward
from saccade.ops.kernels.similarity import (
    EPSILON,
    PackedContext,
    PackedQueries,
    constants,
    launch,
    pack_context,
    pack_queries,
    pooled_similarity,
    score_blocks,
)
from saccade.ops.kernels.tuning import DEFAULT, FEW, GRADIENT_DEFAULT, Tiling
from saccade.ops.pairwise import AttentionForm

_TABLES = 4  # of the size of the scores, alive at once in the backward pass


def kernel_similarity(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    form: AttentionForm,
    dtype: torch.dtype,
    tiling: Tiling | None = None,
    budget: int | None = None,
) -> Float[Tensor, "item other"]:
    """`ops.attended_similarity` by kernels, in float32; `dtype` is the precision of the scores' matrix product.

    Without a `tiling`, the default; scores take at most `budget` bytes at a time.
    """
    learning = torch.is_grad_enabled() and (queries.requires_grad or context.requires_grad)
    tiling = tiling or (GRADIENT_DEFAULT if learning else DEFAULT)
    if budget is not None:
        row = context.shape[0] * context.shape[1] * dtype.itemsize * (_TABLES if learning else 1)
        tiling = replace(tiling, rows=max(tiling.queries, min(tiling.rows, budget // max(1, row))))
    still = learning and query_mask.numel() * context_mask.numel() <= FEW
    result: Tensor = _Packed.apply(  # type: ignore[no-untyped-call]
        queries, query_mask, context, context_mask, form, dtype, tiling, still
    )
    return result


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        query_mask: Tensor,
        context: Tensor,
        context_mask: Tensor,
        form: AttentionForm,
        dtype: torch.dtype,
        tiling: Tiling,
        still: bool,
    ) -> Tensor:
        asking = pack_queries(queries, query_mask, tiling, dtype, still)
        asked = pack_context(context, context_mask, tiling, dtype, still)
        table = pooled_similarity(asking, asked, form, tiling)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(queries, context, table)
            ctx.options = asking, asked, form, tiling
        return table

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, context, table = ctx.saved_tensors
        return (*gradients(queries, context, table, gradient, *ctx.options), *[None] * 4)


def gradients(
    queries: Float[Tensor, "item query dim"],
    context: Float[Tensor, "other part dim"],
    table: Float[Tensor, "item other"],
    gradient: Float[Tensor, "item other"],
    asking: PackedQueries,
    asked: PackedContext,
    form: AttentionForm,
    tiling: Tiling,
) -> tuple[Float[Tensor, "item query dim"], None, Float[Tensor, "other part dim"], None]:
    """Of the queries and the context, from that of the table of similarities."""
    rows, wide, width = asking.bins.rows, asked.bins.rows, len(asked.bins) * asked.bins.size
    into_queries = torch.zeros_like(queries, dtype=torch.float32)
    into_context = torch.zeros_like(context, dtype=torch.float32)
    if not rows or not wide:
        return into_queries.to(queries.dtype), None, into_context.to(context.dtype), None
    gradient, vectors = gradient.float(), asking.vectors
    options = constants(asking, asked, form, tiling)
    if form.pool == "max":  # in 16 bits it is another query that is best, and the kernel went wrong on an H200
        options["INSIDE"] = tl.float32
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
            **launch(tiling),
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
    return into_queries.to(queries.dtype), None, into_context.to(context.dtype), None
