"""All looks of all pairs on a CPU, without a gradient: what `models/imram.py` says, in compiled loops.

A core takes some queries through all their looks at one context item while they are in its cache. In bytes
(`byte_products`) the one product that differs for every pair, W_q q', is taken in 8-bit integers; scores in 16-bit
ones, and queries are kept in these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.nn.memory import MemoryDistillation
from saccade.nn.precision import in_bytes, plainly_on_cpu
from saccade.nn.ragged import Block, Ragged
from saccade.ops import AttentionForm
from saccade.ops.cores import on_every_core
from saccade.ops.native.attention import native_attention
from saccade.ops.native.looks import Asked, Askers, NativeLooks
from saccade.ops.native.panels import Layout

ROWS = 144  # queries of a core: as many as stay in its second cache with all that becomes of them
ITEMS = 8  # context items that a core walks through with them


def native_looks(
    queries: Float[Tensor, "item query dim"],
    context: Float[Tensor, "other part dim"],
    memory: MemoryDistillation,
    form: AttentionForm,
    steps: int,
) -> NativeLooks | None:
    """The loops, where they suit: no gradient, the paper's memory, float32 on a CPU, and enough to do; else None."""
    if not plainly_on_cpu(queries) or memory.form != "gate" or memory.unit_length or form.pool not in ("mean", "sum"):
        return None
    (items, count, dim), others = queries.shape, len(context)
    if not min(queries.numel(), context.numel()) or queries.dtype != context.dtype:
        return None
    attention = native_attention(form, queries.dtype, 4.0 * items * count * others * dim * dim)
    if attention is None or dim % Layout.of(attention.library).panel:
        return None
    return NativeLooks.prepared(attention, steps, form.pool == "mean", memory.layers, in_bytes())


def similarity_of_looks_on_cpu(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    looks: NativeLooks,
    budget: int,
) -> Float[Tensor, "other item"]:
    """Σ_k F_k of every pair of items; beside the table all takes at most about `budget` bytes."""
    asks, looked_at = Ragged(query_mask), Ragged(context_mask)
    own, seen = asks.real(queries), looked_at.real(context)
    vectors = budget // (2 * own.element_size() * 6 * own.shape[1])  # of either side, with what they bring
    few = max(1, vectors // max(1, int(looked_at.counts.max())) // ITEMS) * ITEMS  # context items
    table = torch.zeros(len(context), len(queries))

    def askers(block: Block) -> Askers:
        return looks.askers(own[block.rows], block.start)

    def asked(some: Int[Tensor, " other"]) -> Asked:
        return looks.asked(looked_at.padded(seen, some), looked_at.counts[some].int())

    def prepared(blocks: list[Block], groups: list[Tensor]) -> tuple[list[Askers], list[Asked]]:
        jobs: list[Callable[[], Askers | Asked]] = [partial(askers, block) for block in blocks]
        jobs += [partial(asked, some) for some in groups]
        found = on_every_core(jobs)
        return [each for each in found if isinstance(each, Askers)], [each for each in found if isinstance(each, Asked)]

    def fill(block: Block, mine: Askers, some: Int[Tensor, " other"], theirs: Asked) -> None:
        found = torch.zeros(len(some), len(block.start) - 1)
        looks.add(mine, theirs, found)
        table[some, block.items] = found

    for large in asks.blocks(slice(0, len(queries)), vectors):
        blocks = list(asks.blocks(large.items, ROWS))
        asking: list[Askers] = []
        for begin in range(0, len(context), few):
            groups = looked_at.alike(slice(begin, min(begin + few, len(context))), ITEMS)
            both = prepared(blocks if not asking else [], groups)
            asking, ready = asking or both[0], both[1]
            on_every_core(
                partial(fill, block, mine, some, theirs)
                for block, mine in zip(blocks, asking, strict=True)
                for some, theirs in zip(groups, ready, strict=True)
            )
    return table
