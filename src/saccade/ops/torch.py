"""All-pairs attended similarity in PyTorch: every query item against every context item, no attended vectors in memory.

Queries q_j of one item attend to the context vectors c_i of another (words to regions, or regions to words):

    s_ij  = c_i · q_j                                   one matrix product gives it for all pairs
    s'_ij = normalise s_ij over the queries j           (`normaliser`)
    α_ij  = softmax over i of sharpness · s'_ij
    a_j   = Σ_i α_ij c_i                                never computed:
    R_j   = q_j · a_j / (|q_j| |a_j|) = Σ_i α_ij s_ij / (|q_j| √(α_jᵀ G α_j)),   G = C Cᵀ, the context's Gram matrix
    S     = pool R_j over the queries j                 (`pool`)

Work is cut into tiles of context items × query items, whose temporaries stay under a stated budget of bytes, forward
and backward. `ops/reference.py` computes the same from the definition, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.form import DEFAULT_BUDGET, EPSILON, REDUCED, AttentionForm, Context, Pool, Queries, product_dtype
from saccade.ops.tiling import cut, longest_first

TEMPORARIES = 3  # score-sized tensors alive at once in a tile's forward pass
SAVED = 12  # score-sized tensors that autograd keeps for a tile's backward pass
CPU_TILE_BYTES = 7 << 20  # of scores on a CPU: large enough for the product, small enough for the cache


def torch_similarity(
    queries: Queries, context: Context, form: AttentionForm, budget: int = DEFAULT_BUDGET
) -> Float[Tensor, "item other"]:
    """S of every query item with every context item; temporaries take at most about `budget` bytes."""
    if not len(queries) or not len(context):
        return queries.vectors.new_zeros(len(queries), len(context))
    sides = queries.vectors, context.vectors, queries.mask, context.mask
    dtype = product_dtype(queries.vectors)
    learning = torch.is_grad_enabled() and (queries.vectors.requires_grad or context.vectors.requires_grad)
    kept = queries.mask.numel() * context.mask.numel() * queries.vectors.element_size() * SAVED
    with torch.autocast(queries.device.type, enabled=False), torch.set_grad_enabled(learning):
        if learning and kept > budget:  # more than autograd may keep
            result: Tensor = _Recomputed.apply(*sides, form, budget, dtype)  # type: ignore[no-untyped-call]
            return result
        return _table(*sides, form, budget, dtype)


def attention(
    queries: Queries, context: Context, form: AttentionForm
) -> tuple[Float[Tensor, "pair part query"], Float[Tensor, "pair query"], Float[Tensor, " pair"]]:
    """For matched pairs: the weights α, each query's R and the pooled similarity."""
    own, other = (side.vectors.masked_fill(~side.mask[:, :, None], 0.0) for side in (queries, context))
    scores = torch.bmm(other, own.mT)[..., None]  # [pair, part, query, 1]
    mask = queries.mask[..., None]
    match, weights = _match(scores, _norms(own)[..., None], mask, context.mask, _gram(other), form)
    pooled = pool(match, mask, form.pool, form.pool_sharpness, dim=-2)
    return weights[..., 0] * queries.mask[:, None], match[..., 0] * queries.mask, pooled[..., 0]


def attention_weights(
    scores: Float[Tensor, "*pair part query"],
    query_mask: Bool[Tensor, "*#pair query"],
    context_mask: Bool[Tensor, "*#pair part"],
    form: AttentionForm,
) -> Float[Tensor, "*pair part query"]:
    """The weights α alone, for scores of any leading shape: over the parts of the context, for every query.

    In float32 at least: λ₁ multiplies what 16 bits round.
    """
    scores, there = scores.float() if scores.dtype in REDUCED else scores, query_mask.unsqueeze(-2)
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


def _norms(queries: Float[Tensor, "item query dim"]) -> Float[Tensor, "item query"]:
    norms: Tensor = torch.linalg.vector_norm(queries, dim=-1)
    return norms


def _gram(context: Float[Tensor, "other part dim"]) -> Float[Tensor, "other part part"]:
    return torch.bmm(context, context.mT)


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
        vectors = vectors.masked_fill(~mask[:, :, None], 0.0)
    return _Group(index, vectors.to(dtype), measure(vectors), mask, whole)


def _groups(vectors: Tensor, mask: Tensor, limit: int, measure: Measure, dtype: torch.dtype) -> list[_Group]:
    """Items sorted by length, so that little is padding, in groups of at most `limit` vectors (or a single item)."""
    order, lengths = longest_first(mask)
    in_order = bool(lengths) and lengths[0] == lengths[-1]  # all of one length: nothing to move
    groups = []
    for place, longest in cut(lengths, lambda longest: limit // longest):
        chosen = place if in_order else order[place]
        real = mask[chosen, :longest]
        groups.append(_group(order[place], vectors[chosen, :longest], real, bool(real.all()), measure, dtype))
    return groups


def _similarity_of_groups(
    columns: Float[Tensor, "query*item dim"], queries: _Group, context: _Group, form: AttentionForm
) -> Float[Tensor, "other item"]:
    """One tile. `columns` holds the queries position by position: with the items innermost, sums run along memory."""
    scores = torch.mm(context.vectors.flatten(0, 1), columns.T).to(queries.size.dtype)
    scores = scores.view(*context.mask.shape, *queries.mask.T.shape)  # [other, part, query, item]
    match, _ = _match(scores, queries.size.T, queries.mask.T, context.mask, context.size, form, context.whole)
    return pool(match, queries.mask.T, form.pool, form.pool_sharpness, dim=-2)


def _positions(queries: _Group) -> Float[Tensor, "query*item dim"]:
    """All first queries, then all second queries, …"""
    return queries.vectors.transpose(0, 1).flatten(0, 1)


def _table(
    queries: Tensor,
    context: Tensor,
    query_mask: Tensor,
    context_mask: Tensor,
    form: AttentionForm,
    budget: int,
    dtype: torch.dtype,
) -> Float[Tensor, "item other"]:
    """Tile after tile, then back into the items' own order."""
    wide, tall = _sides(query_mask, context_mask, queries.element_size(), budget // TEMPORARIES)
    query_groups = _groups(queries, query_mask, wide, _norms, dtype)
    context_groups = _groups(context, context_mask, tall, _gram, dtype)
    columns = []
    for group in query_groups:
        vectors = _positions(group)
        columns.append(torch.cat([_similarity_of_groups(vectors, group, other, form) for other in context_groups]))
    item, other = (torch.cat([group.index for group in groups]).argsort() for groups in (query_groups, context_groups))
    return torch.cat(columns, dim=1).T[item][:, other]


class _Recomputed(torch.autograd.Function):
    """Nothing of a tile is kept for the backward pass: it is computed again when its gradient is wanted."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        context: Tensor,
        query_mask: Tensor,
        context_mask: Tensor,
        form: AttentionForm,
        budget: int,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(queries, context, query_mask, context_mask)
        ctx.options = form, budget, dtype
        return _table(queries, context, query_mask, context_mask, form, budget, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, context, query_mask, context_mask = ctx.saved_tensors
        form, budget, dtype = ctx.options
        wide, tall = _sides(query_mask, context_mask, queries.element_size(), budget // SAVED)
        into_queries, into_context = torch.zeros_like(queries), torch.zeros_like(context)
        context_groups = _groups(context, context_mask, tall, _gram, queries.dtype)
        for own in _groups(queries, query_mask, wide, _norms, queries.dtype):
            for other in context_groups:
                leaves = [group.vectors.detach().requires_grad_() for group in (own, other)]
                with torch.enable_grad():
                    queries_again, context_again = (
                        _group(group.index, leaf, group.mask, group.whole, measure, dtype)
                        for group, leaf, measure in zip((own, other), leaves, (_norms, _gram), strict=True)
                    )
                    similarity = _similarity_of_groups(_positions(queries_again), queries_again, context_again, form)
                wanted = gradient[own.index[:, None], other.index].T
                found = torch.autograd.grad(similarity, leaves, wanted)
                into_queries[own.index, : found[0].shape[1]] += found[0]
                into_context[other.index, : found[1].shape[1]] += found[1]
        return into_queries, into_context, None, None, None, None, None


def _sides(query_mask: Tensor, context_mask: Tensor, element_size: int, tile_bytes: int) -> tuple[int, int]:
    """How many query and context vectors a tile of scores may have; ragged items go in smaller groups: less padding."""
    if query_mask.device.type == "cpu":
        tile_bytes = min(tile_bytes, CPU_TILE_BYTES)
    side = (tile_bytes / element_size) ** 0.5
    stretch = 3.0 ** (0.5 * (float(query_mask.all()) - float(context_mask.all())))
    return max(1, int(side * stretch)), max(1, int(side / stretch))
