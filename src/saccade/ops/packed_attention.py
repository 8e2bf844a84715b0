"""Attention within each item of a packed batch, whose tokens lie one after the other without padding.

    o_i = Σ_j dropout(softmax_j(q_i · k_j / √width)) v_j        i and j of one item

In 16 bits on a GPU a kernel of our own takes items that fit into one tile, as a caption with some regions does; the one
behind `torch.nn.attention.varlen` takes items of any length, and these more slowly. Elsewhere padding comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from saccade.ops import gpu
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import REDUCED

MAX_FLASH_WIDTH = 256  # of a head
MAX_TILE_TOKENS, MAX_TILE_WIDTH = 128, 128  # of an item and of a head


@dataclass(frozen=True)
class PackedAttention:
    """Queries, keys and values of the tokens of all items, and where these belong."""

    joined: Float[Tensor, "token 3 head width"]
    at: Int[Tensor, " token"]  # in the padded batch, flattened
    starts: Int[Tensor, " bound"]  # each item's first token, and the end of the last item
    mask: Bool[Tensor, "item 1 1 place"]  # of the padded batch
    dropout: float  # of weights

    @property
    def longest(self) -> int:
        return self.mask.shape[3]

    def describe(self) -> str:
        _, _, heads, width = self.joined.shape
        return (
            f"{str(self.joined.dtype).removeprefix('torch.')}, {heads} heads of {width}, items of {self.longest} places"
        )


def _suits_kernels(problem: PackedAttention) -> str | None:
    if not problem.joined.is_cuda:
        return "the tokens are not on a GPU"
    return None if problem.joined.dtype in REDUCED else "it takes 16 bits"


def _suits_width(problem: PackedAttention, widest: int) -> str | None:
    width = problem.joined.shape[3]
    return f"a head is {width} wide, it takes multiples of 8 up to {widest}" if width % 8 or width > widest else None


def _suits_flash(problem: PackedAttention) -> str | None:
    return _suits_width(problem, MAX_FLASH_WIDTH) or _suits_kernels(problem)


def _suits_tile(problem: PackedAttention) -> str | None:
    if problem.longest > MAX_TILE_TOKENS:
        return f"an item has {problem.longest} places, a tile holds {MAX_TILE_TOKENS}"
    return _suits_width(problem, MAX_TILE_WIDTH) or _suits_kernels(problem) or gpu.refuses(problem.joined.device)


def flash(problem: PackedAttention) -> Float[Tensor, "token head width"]:
    """By the kernel of `torch.nn.attention.varlen`, which itself has no dropout."""
    attention, starts, longest = torch.ops.aten._flash_attention_forward, problem.starts, problem.longest
    parts = problem.joined.unbind(dim=1)
    found: Tensor = attention(*parts, starts, starts, longest, longest, problem.dropout, False, False)[0]
    return found


def in_tiles(problem: PackedAttention) -> Float[Tensor, "token head width"]:
    """By a kernel that holds all of an item."""
    from saccade.ops.triton.packed_attention import attend_in_tiles

    return attend_in_tiles(problem.joined, problem.starts, problem.longest, problem.dropout)


def through_padding(problem: PackedAttention) -> Float[Tensor, "token head width"]:
    """By PyTorch's attention, masked."""
    padded = unpack(problem.joined, problem.at, (len(problem.mask), problem.longest))
    queries, keys, values = padded.permute(2, 0, 3, 1, 4).unbind()
    found = functional.scaled_dot_product_attention(queries, keys, values, problem.mask, problem.dropout)
    return found.transpose(1, 2).flatten(0, 1).index_select(0, problem.at)


def unpack(
    tokens: Float[Tensor, "token ..."], at: Int[Tensor, " token"], shape: Sequence[int]
) -> Float[Tensor, "item place ..."]:
    """The padded batch [item, place] of packed tokens, zero where there is none."""
    padded = tokens.new_zeros(shape[0] * shape[1], *tokens.shape[1:]).index_copy(0, at, tokens)
    return padded.view(shape[0], shape[1], *tokens.shape[1:])


PACKED_ATTENTION: Operator[PackedAttention, Tensor] = Operator(
    "packed_attention",
    (
        Backend("triton", _suits_tile, in_tiles, gpu.triton_unavailable),
        Backend("flash", _suits_flash, flash, gpu.gpu_unavailable),
        Backend("torch", anything, through_padding),
    ),
)
