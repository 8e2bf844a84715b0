"""Every picture beside every sentence on a CPU, without a gradient: what `models/camp.py` says, in compiled loops.

A core takes some fragments through all that they become beside one item of the other side while they are in its cache.
In bytes (`byte_products`) the one product that differs for every pair, L₁ v', is taken in 8-bit integers; scores, maps
and the judge in 16-bit ones.
"""

from __future__ import annotations

from ctypes import CDLL
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.nn.precision import plainly_on_cpu
from saccade.nn.ragged import Block, Ragged
from saccade.ops.cores import on_every_core
from saccade.ops.native import native_library
from saccade.ops.native.messages import Heard, Hearers, NativeMessages
from saccade.ops.native.panels import Layout

ROWS = 144  # fragments of a core: as many as stay in its second cache with all that becomes of them
ITEMS = 8  # items of the other side that it walks through with them


class Mapped(NamedTuple):
    """The real fragments of one side, and all that they are mapped to before they meet the other: each [row, dim]."""

    where: Ragged
    vectors: Tensor
    asked: Tensor  # W_qᵀ W_k t: multiplied with v it is (W_q v) · (W_k t)
    again: list[Tensor]  # A_q t, A_k t, or nothing
    own: Tensor  # F_own v
    sent: Tensor  # F_sent v, for the other side


def library_for(regions: Float[Tensor, "image region dim"], words: Float[Tensor, "text word dim"]) -> CDLL | None:
    """The compiled loops, where they suit: no gradient, float32 on a CPU, and enough to do; else None."""
    (images, most, dim), (texts, longest, _) = regions.shape, words.shape
    pairs = images * texts * (most + longest)
    if not plainly_on_cpu(regions) or not pairs or {regions.dtype, words.dtype} != {torch.float32}:
        return None
    library = native_library(2.0 * pairs * dim * dim)
    if library is None or dim % (panel := Layout.of(library).panel) or max(most, longest) > panel:
        return None
    return library


def pool_messages(
    hearing: NativeMessages,
    own: Mapped,
    items: slice,
    other: Mapped,
    others: slice,
    pooled: Float[Tensor, "other item dim"],
) -> None:
    """Into `pooled`: what each of some items becomes beside each of some others."""

    def hearers(block: Block) -> Hearers:
        return hearing.hearers([each[block.rows] for each in (own.vectors, own.own)], block.start)

    def heard(some: Int[Tensor, " other"]) -> Heard:
        asked, vectors, sent = (other.where.padded(rows, some) for rows in (other.asked, other.vectors, other.sent))
        between = None
        if other.again:
            queries, keys = (other.where.padded(rows, some) for rows in other.again)
            between = torch.bmm(queries, keys.mT)
        return hearing.heard(asked, vectors, between, sent, other.where.counts[some].int())

    def fill(block: Block, mine: Hearers, some: Int[Tensor, " other"], theirs: Heard) -> None:
        mine_in = slice(block.items.start - items.start, block.items.stop - items.start)
        hearing.pool(mine, theirs, pooled[:, mine_in], some - others.start)

    blocks, groups = list(own.where.blocks(items, ROWS)), other.where.alike(others, ITEMS)
    mine = on_every_core(partial(hearers, block) for block in blocks)
    theirs = on_every_core(partial(heard, some) for some in groups)
    on_every_core(
        partial(fill, *one, *another)
        for one in zip(blocks, mine, strict=True)
        for another in zip(groups, theirs, strict=True)
    )
