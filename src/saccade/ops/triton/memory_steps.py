"""IMRAM's steps and memory: queries that differ with every context item, read and written once, without a gradient.

Rows are the queries of all items, one after the other and without padding. A context item has PARTS places, a power of
two; after its own vectors come zeros.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: RET505, SIM108
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from saccade.ops.form import REDUCED, AttentionForm
from saccade.ops.triton.tile import EPSILON, LEAST, TINY, clip, scale_of

FUSED_MULTIPLE = 64  # queries of this width or a multiple can be updated in one kernel
ROWS, COLUMNS, WARPS, STAGES = 128, 32, 8, 3  # how it cuts them: two programs at once have room on a Hopper's core


@dataclass(frozen=True)
class StepContext:
    """Context items, each in a power of two of places: its own vectors first, then zeros."""

    vectors: Float[Tensor, "other part dim"]
    gram: Float[Tensor, "other part part"]  # float32
    count: Int[Tensor, " other"]  # int32: vectors of its own


@dataclass(frozen=True)
class StepQueries:
    """The first queries of some items, one after the other."""

    vectors: Float[Tensor, "row dim"]
    length: Float[Tensor, " row"]  # float32: |q|
    start: Int[Tensor, " item+1"]  # int32: the first row of each item, and the end
    longest: int  # queries that an item has at most


def attend_step(
    queries: StepQueries,
    context: StepContext,
    scores: Float[Tensor, "other row part"],
    first: Float[Tensor, "other row part"],
    form: AttentionForm,
    weights: Float[Tensor, "other row part"] | None,
) -> Float[Tensor, "other item"]:
    """Of every pair the mean (or sum) of cosines of this step; its weights are written into `weights`."""
    (others, rows, parts), items = scores.shape, len(queries.start) - 1
    found = torch.empty(others, items, device=scores.device)
    places = power_of_two_from_16(queries.longest)
    attend_step_kernel[others * items,](
        *(scores, first, scores if weights is None else weights, context.gram, queries.length, queries.start),
        *(context.count, found, rows, items, form.sharpness, form.slope),
        NORMALISER=form.normaliser,
        MEAN=form.pool == "mean",
        STORE_WEIGHTS=weights is not None,
        QUERIES=places,
        PARTS=parts,
        PRECISION="tf32" if scores.dtype in REDUCED else "tf32x3",
        num_warps=1 if places * parts <= 512 else 2 if places * parts <= 1024 else 4,
    )
    return found


def update_queries(
    mixed: Float[Tensor, "#other row offered"],
    query: Float[Tensor, "#other row dim"],
    weights: Float[Tensor, "other row part"],
    offered: Float[Tensor, "other part offered"],
    context: StepContext,
    shared: bool,
    keep: bool,
) -> tuple[Float[Tensor, "other row dim"] | None, Float[Tensor, "other row part"]]:
    """The queries after a step, if they are to be kept, and their scores with the context.

    Queries that are not shared by all context items are written over. `mixed` is what they bring into it.
    """
    (others, rows, parts), dim = weights.shape, query.shape[-1]
    updated = query.new_empty(others, rows, dim) if keep and shared else query
    scores = torch.empty_like(weights)
    if others * rows:
        update_kernel[others * -(-rows // ROWS),](
            *(mixed, query, weights, offered, context.vectors, updated, scores, rows, others),
            SHARED=shared,
            KEEP=keep,
            DIM=dim,
            PARTS=parts,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            NATIVE=query.is_cuda and query.dtype in REDUCED,
            num_warps=WARPS,
            num_stages=STAGES,
        )
    return updated if keep else None, scores


def blend(
    mixed: Float[Tensor, "other row offered"], query: Float[Tensor, "#other row dim"], shared: bool
) -> Float[Tensor, "other row dim"]:
    """q' from what the gate and the candidate are made of; it takes the place of queries that are not shared."""
    (others, rows, _), dim = mixed.shape, query.shape[-1]
    updated = query.new_empty(others, rows, dim) if shared else query
    columns = min(1024, 1 << (dim - 1).bit_length())
    if others * rows:
        blend_kernel[others * rows, -(-dim // columns)](
            mixed, query, updated, rows, dim, SHARED=shared, COLUMNS=columns
        )
    return updated


def power_of_two_from_16(size: int) -> int:
    """The power of two that holds so many, of which a product in a kernel needs sixteen."""
    return max(16, 1 << (size - 1).bit_length()) if size else 16


@triton.jit
def tanh(x, NATIVE: tl.constexpr):
    """Compiled, in one instruction that is good for 16 bits."""
    if NATIVE:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    else:
        small = tl.exp(-2.0 * tl.abs(x))
        found = (1.0 - small) / (1.0 + small)
        return tl.where(x < 0.0, -found, found)


@triton.jit
def blended(gate, candidate, query, NATIVE: tl.constexpr):
    """q' = σ(m_g) q + (1 − σ(m_g)) tanh(m_u)."""
    if NATIVE:
        keep = 0.5 + 0.5 * tanh(0.5 * gate, NATIVE)
    else:
        keep = tl.sigmoid(gate)
    new = tanh(candidate, NATIVE)
    return new + keep * (query - new)


@triton.jit
def blend_kernel(MIXED, QUERY, UPDATED, rows, dim, SHARED: tl.constexpr, COLUMNS: tl.constexpr):
    """A program takes some columns of one query. SHARED: all context items have the same queries."""
    own = tl.program_id(0).to(tl.int64)
    source = own % rows if SHARED else own
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < dim
    gate = tl.load(MIXED + own * 2 * dim + column, mask=inside, other=0.0).to(tl.float32)
    candidate = tl.load(MIXED + own * 2 * dim + dim + column, mask=inside, other=0.0).to(tl.float32)
    query = tl.load(QUERY + source * dim + column, mask=inside, other=0.0).to(tl.float32)
    new = blended(gate, candidate, query, False)
    tl.store(UPDATED + own * dim + column, new.to(UPDATED.dtype.element_ty), mask=inside)


@triton.jit
def update_kernel(
    MIXED,  # [other or 1, row, 2 DIM]: W_q q, for the gate and the candidate
    QUERY,  # [other or 1, row, DIM]
    WEIGHTS,  # [other, row, PARTS]: α
    OFFERED,  # [other, PARTS, 2 DIM]: W_a c + b
    CONTEXT,  # [other, PARTS, DIM]: c
    UPDATED,  # [other, row, DIM]: q', where KEEP
    SCORES,  # [other, row, PARTS]: q' · c
    rows,
    others,
    SHARED: tl.constexpr,  # the first update: all context items have the same queries
    KEEP: tl.constexpr,  # not the last one: q' is wanted again
    DIM: tl.constexpr,  # a multiple of COLUMNS
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Some queries of one context item: what they found comes in, and q' is compared with the context at once.

    What many programs read comes first in their order: the queries where they are shared, else the context item.
    """
    number = tl.program_id(0)
    blocks = tl.cdiv(rows, ROWS)
    if SHARED:
        other = number % others
        block = number // others
    else:
        other = number // blocks
        block = number % blocks
    part = tl.arange(0, PARTS)
    row = block * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    own = other.to(tl.int64) * rows + row
    source = row.to(tl.int64) if SHARED else own
    context = other.to(tl.int64) * PARTS + part
    weights = tl.load(WEIGHTS + own[:, None] * PARTS + part[None, :], mask=inside, other=0.0)
    scores = tl.zeros((ROWS, PARTS), tl.float32)
    for start in range(0, DIM, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        brought = OFFERED + context[:, None] * (2 * DIM) + column[None, :]
        mixed = MIXED + source[:, None] * (2 * DIM) + column[None, :]
        gate = tl.load(mixed, mask=inside, other=0.0).to(tl.float32)
        gate = tl.dot(weights, tl.load(brought), gate, input_precision="ieee")
        candidate = tl.load(mixed + DIM, mask=inside, other=0.0).to(tl.float32)
        candidate = tl.dot(weights, tl.load(brought + DIM), candidate, input_precision="ieee")
        query = tl.load(QUERY + source[:, None] * DIM + column[None, :], mask=inside, other=0.0).to(tl.float32)
        new = blended(gate, candidate, query, NATIVE).to(CONTEXT.dtype.element_ty)
        if KEEP:
            tl.store(UPDATED + own[:, None] * DIM + column[None, :], new, mask=inside)
        towards = tl.load(CONTEXT + context[None, :] * DIM + column[:, None])
        scores = tl.dot(new, towards, scores, input_precision="ieee")
    tl.store(SCORES + own[:, None] * PARTS + part[None, :], scores.to(SCORES.dtype.element_ty), mask=inside)


@triton.jit
def attend_step_kernel(
    SCORES,  # [other, row, PARTS]
    FIRST,  # [other, row, PARTS]: those of the first step
    WEIGHTS,  # [other, row, PARTS]: α, where STORE_WEIGHTS; may be SCORES
    GRAM,  # [other, PARTS, PARTS]
    LENGTH,  # [row]: |q| of the first queries
    START,  # [item + 1]: the first row of each item, and the end
    COUNT,  # [other]: vectors of a context item
    OUT,  # [other, item]: the mean or the sum of the cosines of an item's queries
    rows,
    items,
    sharpness,
    slope,
    NORMALISER: tl.constexpr,
    MEAN: tl.constexpr,
    STORE_WEIGHTS: tl.constexpr,
    QUERIES: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One pair of items: the weights of a step, and the cosines of what it found with the first queries."""
    item = tl.program_id(0) % items
    other = tl.program_id(0) // items
    begin = tl.load(START + item)
    size = tl.load(START + item + 1) - begin
    count = tl.load(COUNT + other)
    query = tl.arange(0, QUERIES)
    part = tl.arange(0, PARTS)
    real = query < size
    inside = real[:, None]
    place = (other.to(tl.int64) * rows + begin + query)[:, None] * PARTS + part[None, :]
    scores = tl.load(SCORES + place, mask=inside, other=0.0).to(tl.float32)
    first = tl.load(FIRST + place, mask=inside, other=0.0).to(tl.float32)

    if NORMALISER == "softmax":
        logit = tl.where(inside, scores, LEAST)
        raised = tl.where(inside, tl.exp(logit - tl.max(logit, axis=0)[None, :]), 0.0)
        logit = raised * (sharpness / tl.maximum(tl.sum(raised, axis=0), TINY))[None, :]
    elif NORMALISER == "clipped" or NORMALISER == "none":
        logit = clip(scores, slope, NORMALISER) * sharpness
    else:
        logit = clip(scores, slope, NORMALISER)
        if NORMALISER == "clipped_l2" or NORMALISER == "l2":
            total = tl.sum(logit * logit, axis=0)
        else:
            total = tl.sum(tl.abs(logit), axis=0)
        logit = logit * scale_of(total, sharpness, NORMALISER, tl.float32)[None, :]

    there = (part < count)[None, :]
    logit = tl.where(there, logit, LEAST)
    raised = tl.where(there, tl.exp(logit - tl.max(logit, axis=1)[:, None]), 0.0)
    weights = raised / tl.maximum(tl.sum(raised, axis=1), TINY)[:, None]
    if STORE_WEIGHTS:
        tl.store(WEIGHTS + place, weights.to(WEIGHTS.dtype.element_ty), mask=inside)

    gram = tl.load(GRAM + other.to(tl.int64) * PARTS * PARTS + part[:, None] * PARTS + part[None, :])
    square = tl.sum(tl.dot(weights, gram, input_precision=PRECISION) * weights, axis=1)
    found_length = tl.sqrt(tl.maximum(square, EPSILON * EPSILON))
    length = tl.load(LENGTH + begin + query, mask=real, other=0.0)
    match = tl.sum(weights * first, axis=1) / tl.maximum(length * found_length, EPSILON)
    total = tl.sum(tl.where(real, match, 0.0), axis=0)
    if MEAN:
        total = total / tl.maximum(size, 1).to(tl.float32)
    tl.store(OUT + other.to(tl.int64) * items + item, total)
