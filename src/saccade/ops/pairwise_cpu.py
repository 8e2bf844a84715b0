"""All-pairs attended similarity on a CPU, for its value alone: what `ops/pairwise.py` says, paced by its one product.

A core takes some queries and multiplies them with one tile of the context after the other. It goes through the scores
in slices that stay in its cache, and writes over them and over the same memory again. Two things need not be done: the
softmax's sum cancels in the cosine (only its ε wants to know it, and gets it from a row of ones below the Gram matrix),
and where a normaliser keeps the scores within ±1 the exponential needs no maximum. For such normalisers and float32,
loops of our own do all of it instead (`ops/pairwise_native.py`), if they are compiled or worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.ops.cores import on_every_core
from saccade.ops.native.attention import SAFE, native_attention
from saccade.ops.pairwise_native import native_similarity
from saccade.ops.sorted_items import Cut, SortedItems, pool_cosines, sorted_items

if TYPE_CHECKING:
    from saccade.ops.pairwise import AttentionForm

EPSILON = 1e-8
_CONTEXT = 2304  # context vectors of a tile, and
_QUERIES = 800  # queries: enough for the product to run at full speed
_FULL = 0.25  # of those: from here on a group of items may end early
_SLICE = 400 << 10  # bytes of scores that are worked on at once: three such fit a core's cache
_LEAST = 1e-20  # weights sum up to more, or there was nothing to weigh


@dataclass(frozen=True)
class _Asking:
    """Queries of some items, position by position: with the items innermost, sums run along memory."""

    place: slice
    vectors: Float[Tensor, "query*item dim"]
    norm: Float[Tensor, "query item"]
    absent: Bool[Tensor, "query item"] | None  # where they are padding, if any is


@dataclass(frozen=True)
class _Asked:
    """Context vectors of some items."""

    place: slice
    vectors: Float[Tensor, "other*part dim"]
    gram: Float[Tensor, "other part+1 part"]  # below it ones
    there: Bool[Tensor, "other part"] | None  # where they are real, if some are not


def similarity_on_cpu(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    form: AttentionForm,
    budget: int,
) -> Float[Tensor, "item other"]:
    """For `choice="attend"`. Temporaries of all cores together take at most about `budget` bytes, not counted what the
    context brings: a copy of it if its items differ in length, and its Gram matrices."""
    work = 2.0 * query_mask.numel() * context_mask.numel() * queries.shape[-1]
    native = native_attention(form, queries.dtype, work)
    if native is not None:
        return native_similarity(queries, query_mask, context, context_mask, form, native, budget)
    cores = torch.get_num_threads()
    numbers = budget // queries.element_size() // cores
    wide = min(_QUERIES, max(1, numbers // (4 * queries.shape[-1])))  # a quarter for the queries' own vectors
    tall = min(_CONTEXT, max(1, numbers // (4 * wide)))
    asking, asked = sorted_items(queries, query_mask, wide, _FULL), sorted_items(context, context_mask, tall, _FULL)
    ready: list[_Asked] = []
    on_every_core(partial(_prepare, asked, cut, ready) for cut in asked.cuts)
    table = queries.new_empty(len(context), len(queries))
    shares = -(-2 * cores // max(1, len(asking.cuts)))  # few queries: their context is split between the cores
    on_every_core(
        partial(_ask, asking, cut, ready[share::shares], form, table) for cut in asking.cuts for share in range(shares)
    )
    return table.T[asking.order.argsort()][:, asked.order.argsort()]


def _prepare(items: SortedItems, cut: Cut, ready: list[_Asked]) -> None:
    vectors, there, whole = items.take(cut)
    gram = torch.cat([torch.bmm(vectors, vectors.mT), vectors.new_ones(len(vectors), 1, cut[1])], dim=1)
    ready.append(_Asked(cut[0], vectors.flatten(0, 1), gram, None if whole else there))


def _ask(items: SortedItems, cut: Cut, context: Sequence[_Asked], form: AttentionForm, table: Tensor) -> None:
    """Into the table: the similarities of some query items with some context items."""
    if not context:
        return
    vectors, there, whole = items.take(cut)
    vectors = vectors.transpose(0, 1).flatten(0, 1)
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    asking = _Asking(cut[0], vectors, norm.view(there.T.shape), None if whole else ~there.T)
    scores = vectors.new_empty(max(len(asked.vectors) for asked in context) * len(vectors))
    buffers = [scores[:0], scores[:0]]
    for asked in context:
        table[asked.place, asking.place] = _tile(asking, asked, form, scores, buffers)


def _tile(
    asking: _Asking, asked: _Asked, form: AttentionForm, space: Float[Tensor, " number"], buffers: list[Tensor]
) -> Float[Tensor, "other item"]:
    queries, items = asking.norm.shape
    count, parts = len(asked.gram), asked.gram.shape[2]
    scores = space[: count * parts * queries * items].view(count * parts, queries * items)
    torch.mm(asked.vectors, asking.vectors.T, out=scores)
    step = max(1, _SLICE // (scores.element_size() * parts * queries * items))
    sums = scores.new_empty(3, count, queries, items)
    pieces = [scores.view(count, parts, queries, items), asked.gram, *sums]
    there = [None] * count if asked.there is None else torch.split(asked.there[:, :, None, None], step)
    shape, weights, beside = None, scores, scores
    for score, gram, found, total, squared, real in zip(
        *(torch.split(piece, step) for piece in pieces), there, strict=False
    ):
        if score.shape != shape:
            shape = score.shape
            weights = _of_shape(buffers, 0, shape)
            beside = _of_shape(buffers, 1, (shape[0], parts + 1, queries, items))
            product, last = beside[:, :parts], beside[:, parts]
            flat, flat_beside = weights.flatten(2), beside.flatten(2)
        _weigh(score, asking.absent, real, form, weights, product)
        torch.sum(torch.mul(weights, score, out=product), dim=1, out=found)  # q · a; padding has score 0
        torch.bmm(gram, flat, out=flat_beside)  # G α, and below it Σ α
        total.copy_(last)
        torch.sum(product.mul_(weights), dim=1, out=squared)  # |a|² = αᵀGα
    found, total, squared = sums
    total.clamp_(min=_LEAST)
    length = squared.clamp_(min=0).sqrt_().div_(total).clamp_(min=EPSILON).mul_(asking.norm).clamp_(min=EPSILON)
    return pool_cosines(found.div_(total.mul_(length)), asking.absent, form)


def _of_shape(buffers: list[Tensor], which: int, shape: Sequence[int]) -> Tensor:
    """The same memory as before; more of it where a single item needs it."""
    size = torch.Size(shape).numel()
    if buffers[which].numel() < size:
        buffers[which] = buffers[which].new_empty(size)
    return buffers[which][:size].view(shape)


def _weigh(
    score: Float[Tensor, "some part query item"],
    absent: Bool[Tensor, "query item"] | None,
    there: Bool[Tensor, "some part 1 1"] | None,
    form: AttentionForm,
    weight: Float[Tensor, "some part query item"],
    beside: Float[Tensor, "some part query item"],
) -> None:
    """Into `weight`: numbers in the proportions of the weights α, zero where the context is not `there`."""
    name, raw = form.normaliser, score
    if name == "softmax":
        kept = score if absent is None else score.masked_fill(absent, -torch.inf)
        torch.softmax(kept, dim=2, out=weight).nan_to_num_().mul_(form.sharpness)
    else:
        if name.startswith("clipped"):
            raw = torch.ops.aten.leaky_relu.out(score, form.slope, out=weight)
        scale: Tensor | float = form.sharpness
        if name.endswith(("l1", "l2")):
            size = torch.mul(raw, raw, out=beside) if name.endswith("l2") else torch.abs(raw, out=beside)
            size = size.sum(dim=2, keepdim=True)
            size = size.sqrt_() if name.endswith("l2") else size
            scale = size.add_(EPSILON).reciprocal_().mul_(form.sharpness)
        torch.mul(raw, scale, out=weight)
    if not name.endswith(("l1", "l2", "softmax")) or abs(form.sharpness) > SAFE:  # else scores are within ±λ
        if there is not None:
            weight.masked_fill_(~there, torch.finfo(weight.dtype).min)
        weight.sub_(weight.amax(dim=1, keepdim=True))
    weight.exp_()
    if there is not None:
        weight.mul_(there)
