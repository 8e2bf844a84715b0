"""Attention within items of few tokens, one after the other in a packed batch: an item's scores fit into one tile.

A program takes one head of one item, reads its queries, keys and values once, and never writes a score. The backward
pass computes the tile again, with the same draws of dropout.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from saccade.ops import gpu
from saccade.ops.form import REDUCED
from saccade.ops.triton.tile import LEAST


def attend_in_tiles(
    joined: Float[Tensor, "token 3 head width"], starts: Int[Tensor, " bound"], longest: int, dropout: float
) -> Float[Tensor, "token head width"]:
    """o_i = Σ_j dropout(softmax_j(q_i · k_j / √width)) v_j within each item, none of more than `longest` tokens."""
    seed = torch.randint(2**31 - 1, (1,), device=joined.device, dtype=torch.int32)
    found: Tensor = tile_attention(joined.contiguous(), starts, seed, longest, dropout)
    return found


@torch.library.custom_op("saccade::tile_attention", mutates_args=())  # so that torch.compile takes it as it is
def tile_attention(joined: Tensor, starts: Tensor, seed: Tensor, longest: int, dropout: float) -> Tensor:
    found = joined.new_empty(len(joined), *joined.shape[2:])
    _launch(attend_kernel, (joined, found), starts, seed, longest, dropout)
    return found


@torch.library.custom_op("saccade::tile_attention_gradient", mutates_args=())
def tile_attention_gradient(
    joined: Tensor, gradient: Tensor, starts: Tensor, seed: Tensor, longest: int, dropout: float
) -> Tensor:
    found = torch.empty_like(joined)
    _launch(gradient_kernel, (joined, gradient, found), starts, seed, longest, dropout)
    return found


@tile_attention.register_fake
def _(joined, starts, seed, longest, dropout):
    return joined.new_empty(joined.shape[0], *joined.shape[2:])


@tile_attention_gradient.register_fake
def _(joined, gradient, starts, seed, longest, dropout):
    return torch.empty_like(joined)


def _keep(ctx, inputs, output) -> None:
    *tensors, ctx.longest, ctx.dropout = inputs
    ctx.save_for_backward(*tensors)


def _go_back(ctx, gradient):
    joined, starts, seed = ctx.saved_tensors
    found = tile_attention_gradient(joined, gradient.contiguous(), starts, seed, ctx.longest, ctx.dropout)
    return found, None, None, None, None


tile_attention.register_autograd(_go_back, setup_context=_keep)


def _launch(kernel, given, starts, seed, longest, dropout) -> None:
    (tokens, _, heads, width), items = given[0].shape, len(starts) - 1
    if not items * tokens:
        return
    side = max(16, triton.next_power_of_2(longest))
    with gpu.on_gpu_of(given[0]):
        kernel[items * heads,](
            *(*given, starts, seed, heads, dropout, 1 / width**0.5),
            TOKENS=side,
            WIDTH=width,
            PLACES=max(16, triton.next_power_of_2(width)),
            DROPS=dropout > 0,
            PRECISION="tf32" if given[0].dtype in REDUCED else "ieee",
            num_warps=4 if side <= 64 else 8,
        )


@triton.jit
def places(STARTS, heads, TOKENS: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr):
    """Of a program: how many tokens its item has, where its queries and what they find lie, and which are real."""
    item, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    start = tl.load(STARTS + item)
    count = tl.load(STARTS + item + 1) - start
    token, place = tl.arange(0, TOKENS)[:, None], tl.arange(0, PLACES)[None, :]
    row = (start + token).to(tl.int64)
    inside = (token < count) & (place < WIDTH)
    return count, (row * 3 * heads + head) * WIDTH + place, (row * heads + head) * WIDTH + place, inside


@triton.jit
def shares(query, key, count, scale, TOKENS: tl.constexpr, PRECISION: tl.constexpr):
    """Softmax over the tokens of the item."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    scores = tl.where(tl.arange(0, TOKENS)[None, :] < count, scores, LEAST)
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def kept(SEED, rate, TOKENS: tl.constexpr):
    """What dropout leaves of a program's tile, 1 or 0, brought to a mean of 1: by bits of a hash of seed and place, a
    few operations where `tl.rand` takes most of the kernel's time."""
    place = tl.arange(0, TOKENS)
    place = (tl.program_id(0) * TOKENS + place[:, None]) * TOKENS + place[None, :]
    drawn = place.to(tl.uint32) ^ tl.load(SEED).to(tl.uint32)
    drawn = (drawn ^ (drawn >> 16)) * 0x7FEB352D
    drawn = (drawn ^ (drawn >> 15)) * 0x846CA68B
    drawn = (drawn ^ (drawn >> 16)) >> 8  # of 24 bits
    return tl.where(drawn.to(tl.float32) >= rate * 16777216.0, 1.0 / (1.0 - rate), 0.0)


@triton.jit
def attend_kernel(
    JOINED, FOUND, STARTS, SEED, heads, rate, scale,
    TOKENS: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A head of an item."""
    count, first, own, inside = places(STARTS, heads, TOKENS, WIDTH, PLACES)
    query = tl.load(JOINED + first, inside, 0.0)
    key = tl.load(JOINED + first + heads * WIDTH, inside, 0.0)
    value = tl.load(JOINED + first + 2 * heads * WIDTH, inside, 0.0)
    share = shares(query, key, count, scale, TOKENS, PRECISION)
    if DROPS:
        share = share * kept(SEED, rate, TOKENS)
    found = tl.dot(share.to(value.dtype), value, input_precision=PRECISION)
    tl.store(FOUND + own, found, inside)


@triton.jit
def gradient_kernel(
    JOINED, GRADIENT, INTO, STARTS, SEED, heads, rate, scale,
    TOKENS: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a head's queries, keys and values, from that of what was found."""
    count, first, own, inside = places(STARTS, heads, TOKENS, WIDTH, PLACES)
    query = tl.load(JOINED + first, inside, 0.0)
    key = tl.load(JOINED + first + heads * WIDTH, inside, 0.0)
    value = tl.load(JOINED + first + 2 * heads * WIDTH, inside, 0.0)
    gradient = tl.load(GRADIENT + own, inside, 0.0)
    share = shares(query, key, count, scale, TOKENS, PRECISION)
    by_share = tl.dot(gradient, tl.trans(value), input_precision=PRECISION)
    left = share
    if DROPS:
        drop = kept(SEED, rate, TOKENS)
        left = share * drop
        by_share = by_share * drop
    by_value = tl.dot(tl.trans(left.to(value.dtype)), gradient, input_precision=PRECISION)
    by_score = share * (by_share - tl.sum(share * by_share, 1)[:, None]) * scale
    by_score = by_score.to(value.dtype)
    tl.store(INTO + first, tl.dot(by_score, key, input_precision=PRECISION), inside)
    into_key = INTO + first + heads * WIDTH
    tl.store(into_key, tl.dot(tl.trans(by_score), query, input_precision=PRECISION), inside)
    tl.store(INTO + first + 2 * heads * WIDTH, by_value, inside)
