"""All-pairs attended similarity: every query item against every context item, without attended vectors in memory.

Queries q_j of one item look at the context vectors c_i of another (words at regions, or regions at words):

    s_ij  = c_i · q_j                                   one matrix product gives it for all pairs
    s'_ij = normalise s_ij over the queries j           (`normaliser`)
    α_ij  = softmax over i of sharpness · s'_ij
    a_j   = Σ_i α_ij c_i                                never computed:
    R_j   = q_j · a_j / (|q_j| |a_j|) = Σ_i α_ij s_ij / (|q_j| √(α_jᵀ G α_j)),   G = C Cᵀ, the context's Gram matrix
    S     = pool R_j over the queries j                 (`pool`)

Work is cut into tiles of context items × query items, whose temporaries stay under a stated budget of bytes, forward
and backward. `ops/pairwise_reference.py` computes the same from the definition, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.kernels import kernels_on, kernels_wanted, on_gpu_of
from saccade.ops.kernels.tuning import FEW, LONGEST
from saccade.ops.pairwise_cpu import EPSILON as EPSILON
from saccade.ops.pairwise_cpu import similarity_on_cpu

Normaliser = Literal["clipped_l2", "l2", "clipped_l1", "l1", "softmax", "clipped", "none"]
Pool = Literal["logsumexp", "mean", "max", "sum"]
Choice = Literal["attend", "max"]

DEFAULT_BUDGET = 256 << 20
_TEMPORARIES = 3  # score-sized tensors alive at once in a tile's forward pass
_SAVED = 12  # score-sized tensors that autograd keeps for a tile's backward pass
_CPU_TILE = 7 << 20  # bytes of scores per tile on a CPU: large enough for the product, small enough for the cache


@dataclass(frozen=True)
class AttentionForm:
    """How queries look at a context and how what they find is summed up."""

    normaliser: Normaliser = "clipped_l2"
    sharpness: float = 9.0  # λ₁
    slope: float = 0.1  # of negative scores under a clipped normaliser; 0 is the paper's [s]₊, 0.1 the official code
    choice: Choice = "attend"  # max: a query takes its best context vector alone (the Sum-Max baselines)
    pool: Pool = "logsumexp"
    pool_sharpness: float = 6.0  # λ₂


def attended_similarity(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    form: AttentionForm,
    budget: int = DEFAULT_BUDGET,
) -> Float[Tensor, "item other"]:
    """The similarity of every query item with every context item; temporaries take at most about `budget` bytes.

    On a GPU kernels do it where they can (`ops/kernels`), in float32 whatever the vectors' precision.
    """
    dtype = _product_dtype(queries)
    arguments = (queries, query_mask, context, context_mask, form, budget, dtype)
    needs_grad = torch.is_grad_enabled() and (queries.requires_grad or context.requires_grad)
    if queries.is_cuda and queries.dtype == context.dtype:
        table = _by_kernel(queries, query_mask, context, context_mask, form, dtype, budget, needs_grad)
        if table is not None:
            return table
    kept = len(queries) * len(context) * queries.shape[1] * context.shape[1] * queries.element_size() * _SAVED
    with torch.autocast(queries.device.type, enabled=False):
        if needs_grad and kept <= budget:  # autograd may keep everything
            return _table(*arguments)
        result: Tensor = _Tiled.apply(*arguments)  # type: ignore[no-untyped-call]
        return result


def attention(
    queries: Float[Tensor, "pair query dim"],
    query_mask: Bool[Tensor, "pair query"],
    context: Float[Tensor, "pair part dim"],
    context_mask: Bool[Tensor, "pair part"],
    form: AttentionForm,
) -> tuple[Float[Tensor, "pair part query"], Float[Tensor, "pair query"], Float[Tensor, " pair"]]:
    """For matched pairs: the weights α, each query's R and the pooled similarity."""
    queries, context = queries * query_mask[:, :, None], context * context_mask[:, :, None]
    scores = torch.bmm(context, queries.transpose(1, 2))[..., None]  # [pair, part, query, 1]
    norm, gram, mask = _norms(queries)[..., None], _gram(context), query_mask[..., None]
    match, weights = _match(scores, norm, mask, context_mask, gram, form)
    pooled = pool(match, mask, form.pool, form.pool_sharpness, dim=-2)
    return weights[..., 0] * query_mask[:, None], match[..., 0] * query_mask, pooled[..., 0]


def attention_weights(
    scores: Float[Tensor, "*pair part query"],
    query_mask: Bool[Tensor, "*#pair query"],
    context_mask: Bool[Tensor, "*#pair part"],
    form: AttentionForm,
) -> Float[Tensor, "*pair part query"]:
    """The weights α alone, for scores of any leading shape: over the parts of the context, for every query."""
    there = query_mask.unsqueeze(-2)
    sharp = _sharpen((scores * there).unsqueeze(-1), query_mask.unsqueeze(-1), form).squeeze(-1)
    return sharp.masked_fill(~context_mask.unsqueeze(-1), torch.finfo(scores.dtype).min).softmax(dim=-2) * there


def pool(
    match: Float[Tensor, "*items"], mask: Bool[Tensor, "*items"], how: Pool, sharpness: float = 1.0, dim: int = -1
) -> Float[Tensor, "*pooled"]:
    """Sum up the real queries' matches along an axis (eq. 5–8 of SCAN)."""
    if how == "logsumexp":
        return torch.logsumexp((match * sharpness).masked_fill(~mask, -torch.inf), dim=dim) / sharpness
    if how == "max":
        return match.masked_fill(~mask, -torch.inf).amax(dim=dim)
    total = (match * mask).sum(dim=dim)
    return total if how == "sum" else total / mask.sum(dim=dim).clamp(min=1)


def _by_kernel(
    queries: Tensor,
    query_mask: Tensor,
    context: Tensor,
    context_mask: Tensor,
    form: AttentionForm,
    dtype: torch.dtype,
    budget: int,
    needs_grad: bool,
) -> Tensor | None:
    """By the quickest kernel there is for it, if any."""
    arguments = (queries, query_mask, context, context_mask, form, dtype)
    with torch.autocast("cuda", enabled=False), on_gpu_of(queries):
        if not needs_grad and kernels_on():
            from saccade.ops.kernels.warp_tiles import suits, warp_similarity

            if suits(queries.shape[1], context.shape[1], form, dtype, queries.device):
                return warp_similarity(*arguments, budget)
        if queries.dtype != torch.float64 and _suits_triton(query_mask, context_mask, form):
            from saccade.ops.kernels.autograd import kernel_similarity

            return kernel_similarity(*arguments, budget=budget)
    return None


def _suits_triton(asking: Tensor, asked: Tensor, form: AttentionForm) -> bool:
    return 0 < max(asking.shape[1], asked.shape[1]) <= LONGEST and form.slope <= 1 and kernels_wanted(asking.device)


def never_waits(
    query_mask: Bool[Tensor, "item query"], context_mask: Bool[Tensor, "other part"], form: AttentionForm
) -> bool:
    """Whether the table of such items, with its gradient, is a matter of the GPU alone: then it can be recorded."""
    few = query_mask.numel() * context_mask.numel() <= FEW
    return few and query_mask.is_cuda and _suits_triton(query_mask, context_mask, form)


def _product_dtype(like: Tensor) -> torch.dtype:
    """Under autocast the big matrix product runs in the reduced precision; all else stays in the inputs' own."""
    device = like.device.type
    reduced: torch.dtype = torch.get_autocast_dtype(device)
    return reduced if torch.is_autocast_enabled(device) else like.dtype


def _norms(queries: Float[Tensor, "item query dim"]) -> Float[Tensor, "item query"]:
    norms: Tensor = torch.linalg.vector_norm(queries, dim=-1)
    return norms


def _gram(context: Float[Tensor, "other part dim"]) -> Float[Tensor, "other part part"]:
    return torch.bmm(context, context.transpose(1, 2))


def _sharpen(
    scores: Float[Tensor, "other part query item"], query_mask: Bool[Tensor, "*other query item"], form: AttentionForm
) -> Float[Tensor, "other part query item"]:
    """λ₁ s' of eq. 1–3, normalised over the queries of one item for a fixed context vector.

    Padded queries have score 0 and so add nothing to a norm.
    """
    name = form.normaliser
    if name == "softmax":
        masked = scores.masked_fill(~query_mask.unsqueeze(-3), torch.finfo(scores.dtype).min)
        return masked.softmax(dim=-2) * form.sharpness
    clipped = F.leaky_relu(scores, form.slope) if name.startswith("clipped") else scores
    if not name.endswith(("l1", "l2")):
        return clipped * form.sharpness
    if name.endswith("l1"):
        size = clipped.abs().sum(dim=-2, keepdim=True)
    else:  # the clamp gives √0 a gradient of 0
        size = clipped.square().sum(dim=-2, keepdim=True).clamp(min=1e-30).sqrt()
    return torch.mul(clipped, form.sharpness / (size + EPSILON), out=_reuse(clipped) if clipped is not scores else None)


def _reuse(buffer: Tensor) -> Tensor | None:
    """Where no gradient is wanted, results take the place of what is not needed any more: half the memory traffic."""
    return None if torch.is_grad_enabled() else buffer


def _match(
    scores: Float[Tensor, "other part query item"],
    query_norm: Float[Tensor, "*other query item"],
    query_mask: Bool[Tensor, "*other query item"],
    context_mask: Bool[Tensor, "other part"],
    gram: Float[Tensor, "other part part"],
    form: AttentionForm,
    whole: bool = False,  # no context vector is padding
) -> tuple[Float[Tensor, "other query item"], Float[Tensor, "other part query item"]]:
    """R_j of eq. 4 and the weights α, from the raw scores and the Gram matrix."""
    present = context_mask[:, :, None, None]
    if form.choice == "max":
        best = scores.masked_fill(~present, -torch.inf).max(dim=1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(1, best.indices, 1.0) * present
        return torch.where(present.any(dim=1), best.values[:, 0], 0.0), weights
    sharp = _sharpen(scores, query_mask, form)
    if not whole:
        sharp = sharp.masked_fill(~present, torch.finfo(scores.dtype).min)
    weights = torch.softmax(sharp, dim=1, out=_reuse(sharp))
    found = torch.mul(weights, scores, out=_reuse(scores)).sum(dim=1)  # q · a; padded context has score 0
    flat = weights.flatten(2)  # [other, part, query·item]
    turned = torch.bmm(gram, flat, out=_reuse(scores.flatten(2)))  # G α
    squared = torch.mul(flat, turned, out=_reuse(turned)).sum(dim=1).view_as(found)  # |a|² = αᵀGα
    size = query_norm * squared.clamp(min=EPSILON**2).sqrt()
    return found / size.clamp(min=EPSILON), weights


@dataclass(frozen=True)
class _Group:
    """Some items of one side, of similar length, cut to the longest of them; padding is zero."""

    index: Int[Tensor, " item"]
    vectors: Float[Tensor, "item part dim"]  # in the precision of the matrix product
    size: Float[Tensor, "item part"] | Float[Tensor, "item part part"]  # queries: norms; context: Gram matrices
    mask: Bool[Tensor, "item part"]
    whole: bool  # nothing in it is padding


Measure = Callable[[Tensor], Tensor]


def _group(index: Tensor, vectors: Tensor, mask: Tensor, whole: bool, measure: Measure, dtype: torch.dtype) -> _Group:
    if not whole:
        vectors = vectors * mask[:, :, None]
    return _Group(index, vectors.to(dtype), measure(vectors), mask, whole)


def _groups(vectors: Tensor, mask: Tensor, limit: int, measure: Measure, dtype: torch.dtype) -> list[_Group]:
    """Items sorted by length, so that little is padding, in groups of at most `limit` vectors (or a single item)."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    ordered, order = (mask * places).amax(dim=1).sort(descending=True, stable=True)  # the last real part counts
    lengths, groups, start = ordered.tolist(), [], 0
    in_order = bool(lengths) and lengths[0] == lengths[-1]  # all of one length: nothing to move
    while start < len(lengths):
        longest = max(1, lengths[start])
        stop = start + max(1, limit // longest)
        index = order[start:stop]
        chosen = slice(start, stop) if in_order else index
        cut = mask[chosen, :longest]
        groups.append(_group(index, vectors[chosen, :longest], cut, bool(cut.all()), measure, dtype))
        start += len(index)
    return groups


def _similarity_of_groups(
    asking: Float[Tensor, "query*item dim"], queries: _Group, context: _Group, form: AttentionForm
) -> Float[Tensor, "other item"]:
    """One tile. `asking` holds the queries position by position: with the items innermost, sums run along memory."""
    scores = torch.mm(context.vectors.flatten(0, 1), asking.T).to(queries.size.dtype)
    scores = scores.view(*context.mask.shape, *queries.mask.T.shape)  # [other, part, query, item]
    match, _ = _match(scores, queries.size.T, queries.mask.T, context.mask, context.size, form, context.whole)
    return pool(match, queries.mask.T, form.pool, form.pool_sharpness, dim=-2)


def _positions(queries: _Group) -> Float[Tensor, "query*item dim"]:
    """All first queries, then all second queries, …"""
    return queries.vectors.transpose(0, 1).flatten(0, 1)


def _table(
    queries: Tensor,
    query_mask: Tensor,
    context: Tensor,
    context_mask: Tensor,
    form: AttentionForm,
    budget: int,
    product_dtype: torch.dtype,
) -> Float[Tensor, "item other"]:
    """Tile after tile, then back into the items' own order."""
    exact = product_dtype == queries.dtype and queries.dtype in (torch.float32, torch.float64)
    if queries.device.type == "cpu" and exact and form.choice == "attend" and not torch.is_grad_enabled():
        return similarity_on_cpu(queries, query_mask, context, context_mask, form, budget)
    wide, tall = _sides(query_mask, context_mask, queries.element_size(), budget // _TEMPORARIES)
    query_groups = _groups(queries, query_mask, wide, _norms, product_dtype)
    context_groups = _groups(context, context_mask, tall, _gram, product_dtype)
    columns = []
    for group in query_groups:
        asking = _positions(group)
        columns.append(torch.cat([_similarity_of_groups(asking, group, asked, form) for asked in context_groups]))
    item, other = (torch.cat([group.index for group in groups]).argsort() for groups in (query_groups, context_groups))
    return torch.cat(columns, dim=1).T[item][:, other]


class _Tiled(torch.autograd.Function):
    """Nothing of a tile is kept for the backward pass: it is computed again when its gradient is wanted."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        query_mask: Tensor,
        context: Tensor,
        context_mask: Tensor,
        form: AttentionForm,
        budget: int,
        product_dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(queries, query_mask, context, context_mask)
        ctx.options = form, budget, product_dtype
        return _table(queries, query_mask, context, context_mask, form, budget, product_dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, query_mask, context, context_mask = ctx.saved_tensors
        form, budget, product_dtype = ctx.options
        wide, tall = _sides(query_mask, context_mask, queries.element_size(), budget // _SAVED)
        into_queries, into_context = torch.zeros_like(queries), torch.zeros_like(context)
        context_groups = _groups(context, context_mask, tall, _gram, queries.dtype)
        for asking in _groups(queries, query_mask, wide, _norms, queries.dtype):
            for asked in context_groups:
                leaves = [group.vectors.detach().requires_grad_() for group in (asking, asked)]
                with torch.enable_grad():
                    again, other = (
                        _group(group.index, leaf, group.mask, group.whole, measure, product_dtype)
                        for group, leaf, measure in zip((asking, asked), leaves, (_norms, _gram), strict=True)
                    )
                    similarity = _similarity_of_groups(_positions(again), again, other, form)
                wanted = gradient[asking.index[:, None], asked.index].T
                found = torch.autograd.grad(similarity, leaves, wanted)
                into_queries[asking.index, : found[0].shape[1]] += found[0]
                into_context[asked.index, : found[1].shape[1]] += found[1]
        return into_queries, None, into_context, None, None, None, None


def _sides(query_mask: Tensor, context_mask: Tensor, element_size: int, tile_bytes: int) -> tuple[int, int]:
    """How many query and context vectors a tile of scores may have; ragged items go in smaller groups: less padding."""
    if query_mask.device.type == "cpu":
        tile_bytes = min(tile_bytes, _CPU_TILE)
    side = (tile_bytes / element_size) ** 0.5
    stretch = 3.0 ** (0.5 * (float(query_mask.all()) - float(context_mask.all())))
    return max(1, int(side * stretch)), max(1, int(side / stretch))
