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

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Normaliser = Literal["clipped_l2", "l2", "clipped_l1", "l1", "softmax", "clipped", "none"]
Pool = Literal["logsumexp", "mean", "max", "sum"]
Choice = Literal["attend", "max"]

DEFAULT_BUDGET = 256 << 20
EPSILON = 1e-8
_TEMPORARIES = 5  # score-sized tensors alive at once in a tile's forward pass
_SAVED = 12  # score-sized tensors that autograd keeps for a tile's backward pass
_CPU_TILE = 2 << 20  # bytes of scores per tile: what stays in a core's cache is quickest


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
    """The similarity of every query item with every context item; temporaries take at most about `budget` bytes."""
    product_dtype = _product_dtype(queries)
    needs_grad = torch.is_grad_enabled() and (queries.requires_grad or context.requires_grad)
    kept = len(queries) * len(context) * queries.shape[1] * context.shape[1] * queries.element_size() * _SAVED
    with torch.autocast(queries.device.type, enabled=False):
        inputs = _prepare(queries, query_mask, context, context_mask, product_dtype)
        if needs_grad and kept <= budget:  # autograd may keep everything
            vectors, norm, others, gram = inputs
            side = _side(gram, budget // _TEMPORARIES)
            return _table(_groups(vectors, norm, query_mask, side), _groups(others, gram, context_mask, side), form)
        result: Tensor = _Tiled.apply(*inputs, query_mask, context_mask, form, budget)  # type: ignore[no-untyped-call]
        return result


def attention(
    queries: Float[Tensor, "pair query dim"],
    query_mask: Bool[Tensor, "pair query"],
    context: Float[Tensor, "pair part dim"],
    context_mask: Bool[Tensor, "pair part"],
    form: AttentionForm,
) -> tuple[Float[Tensor, "pair part query"], Float[Tensor, "pair query"], Float[Tensor, " pair"]]:
    """For matched pairs: the weights α, each query's R and the pooled similarity."""
    queries, norm, context, gram = _prepare(queries, query_mask, context, context_mask, queries.dtype)
    scores = torch.bmm(context, queries.transpose(1, 2))[:, :, None]  # [pair, part, 1, query]
    match, weights = _match(scores, norm[:, None], query_mask[:, None], context_mask, gram, form)
    pooled = pool(match, query_mask[:, None], form.pool, form.pool_sharpness)
    return weights[:, :, 0] * query_mask[:, None], match[:, 0] * query_mask, pooled[:, 0]


def pool(
    match: Float[Tensor, "*items query"], mask: Bool[Tensor, "*items query"], how: Pool, sharpness: float = 1.0
) -> Float[Tensor, "*items"]:
    """Sum up the real queries' matches (eq. 5–8 of SCAN)."""
    if how == "logsumexp":
        return torch.logsumexp((match * sharpness).masked_fill(~mask, -torch.inf), dim=-1) / sharpness
    if how == "max":
        return match.masked_fill(~mask, -torch.inf).amax(dim=-1)
    total = (match * mask).sum(dim=-1)
    return total if how == "sum" else total / mask.sum(dim=-1).clamp(min=1)


def _product_dtype(like: Tensor) -> torch.dtype:
    """Under autocast the big matrix product runs in the reduced precision; all else stays in the inputs' own."""
    device = like.device.type
    reduced: torch.dtype = torch.get_autocast_dtype(device)
    return reduced if torch.is_autocast_enabled(device) else like.dtype


def _prepare(
    queries: Tensor, query_mask: Tensor, context: Tensor, context_mask: Tensor, product_dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What tiles share: padding set to zero, the queries' norms, the context's Gram matrices."""
    queries, context = queries * query_mask[:, :, None], context * context_mask[:, :, None]
    norm: Tensor = torch.linalg.vector_norm(queries, dim=-1)
    context = context.to(product_dtype)
    gram = torch.bmm(context, context.transpose(1, 2)).to(queries.dtype)
    return queries.to(product_dtype), norm, context, gram


def _sharpen(
    scores: Float[Tensor, "other part item query"], query_mask: Bool[Tensor, "*other item query"], form: AttentionForm
) -> Float[Tensor, "other part item query"]:
    """λ₁ s' of eq. 1–3, normalised over the queries of one item for a fixed context vector.

    Padded queries have score 0 and so add nothing to a norm.
    """
    name = form.normaliser
    if name == "softmax":
        masked = scores.masked_fill(~query_mask.unsqueeze(-3), torch.finfo(scores.dtype).min)
        return masked.softmax(dim=-1) * form.sharpness
    if name.startswith("clipped"):
        scores = F.leaky_relu(scores, form.slope)
    if name.endswith(("l1", "l2")):
        size: Tensor = torch.linalg.vector_norm(scores, ord=int(name[-1]), dim=-1, keepdim=True)
        return scores * (form.sharpness / (size + EPSILON))
    return scores * form.sharpness


def _match(
    scores: Float[Tensor, "other part item query"],
    query_norm: Float[Tensor, "*other item query"],
    query_mask: Bool[Tensor, "*other item query"],
    context_mask: Bool[Tensor, "other part"],
    gram: Float[Tensor, "other part part"],
    form: AttentionForm,
    whole: bool = False,  # no context vector is padding
) -> tuple[Float[Tensor, "other item query"], Float[Tensor, "other part item query"]]:
    """R_j of eq. 4 and the weights α, from the raw scores and the Gram matrix."""
    present = context_mask[:, :, None, None]
    if form.choice == "max":
        best = scores.masked_fill(~present, -torch.inf).max(dim=1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(1, best.indices, 1.0) * present
        return torch.where(present.any(dim=1), best.values[:, 0], 0.0), weights
    sharp = _sharpen(scores, query_mask, form)
    if not whole:
        sharp = sharp.masked_fill(~present, torch.finfo(scores.dtype).min)
    weights = sharp.softmax(dim=1)
    found = (weights * scores).sum(dim=1)  # q · a; padded context has score 0
    flat = weights.flatten(2)  # [other, part, item·query]
    squared = (flat * torch.bmm(gram, flat)).sum(dim=1).view_as(found)  # |a|² = αᵀGα
    size = query_norm * squared.clamp(min=EPSILON**2).sqrt()
    return found / size.clamp(min=EPSILON), weights


@dataclass(frozen=True)
class _Group:
    """Some items of one side, of similar length, cut to the longest of them."""

    index: Int[Tensor, " item"]
    vectors: Float[Tensor, "item part dim"]
    size: Float[Tensor, "item part"] | Float[Tensor, "item part part"]  # queries: norms; context: Gram matrices
    mask: Bool[Tensor, "item part"]
    whole: bool  # nothing in it is padding


def _groups(vectors: Tensor, size: Tensor, mask: Tensor, limit: int) -> list[_Group]:
    """Items sorted by length, so that little is padding, in groups of at most `limit` vectors (or a single item)."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    ordered, order = (mask * places).amax(dim=1).sort(descending=True, stable=True)  # the last real part counts
    lengths, groups, start = ordered.tolist(), [], 0
    while start < len(lengths):
        longest = max(1, lengths[start])
        index = order[start : start + max(1, limit // longest)]
        cut = mask[index, :longest]
        sizes = size[index, :longest] if size.ndim == 2 else size[index, :longest, :longest]
        groups.append(_Group(index, vectors[index, :longest], sizes, cut, bool(cut.all())))
        start += len(index)
    return groups


def _similarity_of_groups(queries: _Group, context: _Group, form: AttentionForm) -> Float[Tensor, "other item"]:
    scores = torch.mm(context.vectors.flatten(0, 1), queries.vectors.flatten(0, 1).T).to(queries.size.dtype)
    scores = scores.view(*context.mask.shape, *queries.mask.shape)  # [other, part, item, query]
    match, _ = _match(scores, queries.size, queries.mask, context.mask, context.size, form, context.whole)
    return pool(match, queries.mask, form.pool, form.pool_sharpness)


def _table(queries: list[_Group], context: list[_Group], form: AttentionForm) -> Float[Tensor, "item other"]:
    """Tile after tile, then back into the items' own order."""
    rows = [torch.cat([_similarity_of_groups(asking, asked, form) for asked in context]) for asking in queries]
    sorted_table = torch.cat(rows, dim=1).T
    item, other = (torch.cat([group.index for group in groups]).argsort() for groups in (queries, context))
    return sorted_table[item][:, other]


class _Tiled(torch.autograd.Function):
    """Nothing of a tile is kept for the backward pass: it is computed again when its gradient is wanted."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        norm: Tensor,
        context: Tensor,
        gram: Tensor,
        query_mask: Tensor,
        context_mask: Tensor,
        form: AttentionForm,
        budget: int,
    ) -> Tensor:
        ctx.save_for_backward(queries, norm, context, gram, query_mask, context_mask)
        ctx.options = form, budget
        side = _side(gram, budget // _TEMPORARIES)
        return _table(_groups(queries, norm, query_mask, side), _groups(context, gram, context_mask, side), form)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, norm, context, gram, query_mask, context_mask = ctx.saved_tensors
        form, budget = ctx.options
        side = _side(gram, budget // _SAVED)
        into = [torch.zeros_like(value) for value in (queries, norm, context, gram)]
        context_groups = _groups(context, gram, context_mask, side)
        for asking in _groups(queries, norm, query_mask, side):
            for asked in context_groups:
                with torch.enable_grad():
                    asking_again, asked_again = _with_grad(asking), _with_grad(asked)
                    similarity = _similarity_of_groups(asking_again, asked_again, form)
                found = torch.autograd.grad(
                    similarity,
                    (asking_again.vectors, asking_again.size, asked_again.vectors, asked_again.size),
                    gradient[asking.index[:, None], asked.index].T,
                    allow_unused=True,  # the Sum-Max baselines use neither norms nor Gram matrices
                )
                for whole, part, index in zip(into, found, [asking.index] * 2 + [asked.index] * 2, strict=True):
                    if part is not None:
                        cut = part.shape[1]
                        if whole.ndim == 3 and part.shape[2] != whole.shape[2]:  # a Gram matrix, cut both ways
                            whole[index, :cut, :cut] += part
                        else:
                            whole[index, :cut] += part
        return (*into, None, None, None, None)


def _with_grad(group: _Group) -> _Group:
    return replace(group, vectors=group.vectors.detach().requires_grad_(), size=group.size.detach().requires_grad_())


def _side(like: Tensor, tile_bytes: int) -> int:
    """How many vectors a square tile of scores may have on a side."""
    if like.device.type == "cpu":
        tile_bytes = min(tile_bytes, _CPU_TILE)
    return max(1, int((tile_bytes / like.element_size()) ** 0.5))
