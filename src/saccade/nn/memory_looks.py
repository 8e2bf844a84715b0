"""All looks of all pairs on a GPU, without a gradient: what `models/imram.py` says, in large tiles without padding.

A query that remembers differs with every context item, so these are by far the largest tensors. Here they are made of
real queries alone, in the precision of the products, and go through memory as few times as can be: in 16 bits, the
kernel that takes a find into memory compares the new query with the context, too, and the last one is never written.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from saccade.nn.memory import MemoryDistillation
from saccade.nn.precision import full_precision
from saccade.nn.ragged import pieces
from saccade.ops import AttentionForm
from saccade.ops.kernels import kernels_wanted, on_gpu_of
from saccade.ops.kernels.tuning import LONGEST

if TYPE_CHECKING:
    from saccade.ops.kernels.remember import Asked, Asking

MANY = 8192  # queries of a tile: then what is prepared for each context item costs next to nothing


def looks_suit_kernels(
    queries: Float[Tensor, "item query dim"],
    context: Float[Tensor, "other part dim"],
    memory: MemoryDistillation,
    form: AttentionForm,
) -> bool:
    """Whether `similarity_of_looks` may be asked: no gradient, the paper's memory, no item too long for a kernel."""
    if torch.is_grad_enabled() or not queries.is_cuda or memory.form != "gate" or memory.unit_length:
        return False
    longest, least = max(queries.shape[1], context.shape[1]), min(queries.numel(), context.numel())
    suits = queries.dtype == context.dtype and queries.dtype != torch.float64 and 0 < longest <= LONGEST and least > 0
    return suits and form.slope <= 1 and form.pool in ("mean", "sum") and kernels_wanted(queries.device)


def similarity_of_looks(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    memory: MemoryDistillation,
    form: AttentionForm,
    steps: int,
    budget: int,
    fused: bool | None = None,
) -> Float[Tensor, "other item"]:
    """Σ_k F_k of every pair of items; tiles take at most about `budget` bytes.

    `fused`: finds come into memory in a kernel, rather than by a product before it; in 16 bits unless told otherwise.
    """
    from saccade.ops.kernels.remember import REDUCED, WIDE, Asked, Asking, at_least_sixteen

    device, dim = queries.device, queries.shape[-1]
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else queries.dtype
    element, room = torch.finfo(dtype).bits // 8, budget * 7 // 8
    fused = (dtype in REDUCED if fused is None else fused) and dim % WIDE == 0
    table = torch.zeros(len(context), len(queries), device=device)
    place, asks = query_mask.flatten().nonzero()[:, 0], query_mask.sum(dim=1).tolist()
    counts, order = context_mask.sum(dim=1).sort(descending=True, stable=True)
    groups = _runs([at_least_sixteen(count) for count in counts.tolist()])
    own_first = (~context_mask).byte().sort(dim=1, stable=True).indices  # a context item's real vectors before padding

    def row_bytes(parts: int) -> int:
        """Of a query and a context item: it, what it brings into an update, and its scores."""
        return element * (3 * dim + 4 * parts)

    with full_precision(queries), on_gpu_of(queries), memory.merged(dtype):
        for items, rows in pieces(asks, min(MANY, room // 16 // row_bytes(groups[0][2]))):
            vectors = queries.flatten(0, 1).index_select(0, place[rows])
            length = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float32)
            start = torch.tensor([0, *accumulate(asks[items])], dtype=torch.int32).to(device)
            asking = Asking(vectors.to(dtype), length, start, max(asks[items]))
            recalled = memory.recall(asking.vectors)[None]
            for begin, end, parts in groups:
                own_bytes = parts * (3 * dim * (4 + element) + 4 * parts)  # of a context item, while it is prepared
                many = max(1, room // (len(vectors) * row_bytes(parts) + own_bytes))
                for here in range(begin, end, many):
                    some = order[here : min(end, here + many)]
                    chosen = own_first[some, :parts]
                    real = context_mask[some].gather(1, chosen)[..., None]
                    seen = context[some[:, None], chosen].masked_fill_(~real, 0.0)
                    seen = F.pad(seen, (0, 0, 0, parts - seen.shape[1]))
                    gram = torch.bmm(seen.float(), seen.float().mT)
                    asked = Asked(seen.to(dtype), gram, counts[here : here + len(some)].int())
                    table[some, items] = _tile(asking, asked, recalled, memory, form, steps, fused)
    return table


def _tile(
    asking: Asking,
    asked: Asked,
    recalled: Float[Tensor, "1 row offered"],
    memory: MemoryDistillation,
    form: AttentionForm,
    steps: int,
    fused: bool,
) -> Float[Tensor, "other item"]:
    from saccade.ops.kernels.remember import blend_into, look, update

    query = asking.vectors[None]
    others, towards = len(asked.vectors), asked.vectors.mT
    first = scores = torch.bmm(query.expand(others, -1, -1), towards)
    offered = memory.offer(asked.vectors)
    total = torch.zeros(others, len(asking.start) - 1, device=query.device)
    if not len(asking.vectors):
        return total
    for step in range(steps):
        shared = step == 0  # at first all context items have the same queries
        weights = None if step + 1 == steps else torch.empty_like(first) if shared else scores
        total += look(asking, asked, scores, first, form, weights)
        if weights is None:
            break  # what the last look finds is remembered by nobody
        mixed = recalled if shared else memory.recall(query)
        if fused:
            kept, scores = update(mixed, query, weights, offered, asked, shared, keep=step + 2 < steps)
            query = query if kept is None else kept
        else:
            mixed = torch.baddbmm(mixed, weights, offered) if shared else mixed.baddbmm_(weights, offered)
            query = blend_into(mixed, query, shared)
            scores = torch.bmm(query, towards)
        del mixed  # before the next is made: these are the largest
    return total


def _runs(values: list[int]) -> list[tuple[int, int, int]]:
    """Where each run of equal values begins and ends, and the value."""
    edges = [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1]), len(values)]
    return [(begin, end, values[begin]) for begin, end in pairwise(edges) if begin < end]
