"""IMRAM's steps of all pairs: attend, compare with the first queries, take what was attended to into memory, K times.

    α    = softmax of λ s̄ over the context, s = q · c          `ops/torch.py` has the normalisers
    F_k += cos(q⁰, Σ α c)                                      pooled over the queries of an item
    q    ← g q + (1 − g) u,   g = σ(W_g [q ; a] + b_g),   u = tanh(W_u [q ; a] + b_u),   a = Σ α c

A query that remembers differs with every context item, so queries of all pairs are by far the largest tensors. On a GPU
they are made of real queries alone, in the precision of the products, and go through memory as few times as can be: in
16 bits, the kernel that takes what was attended to into memory compares the new query with the context, too, and the
last one is never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from saccade.ops import gpu, triton
from saccade.ops.all_pairs import ALL_PAIRS, PairsProblem
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import REDUCED, AttentionForm, product_dtype, roles
from saccade.ops.similarity import attended_similarity
from saccade.ops.tiling import neighbours

if TYPE_CHECKING:
    from saccade.ops.triton.memory_steps import StepContext, StepQueries

TILE_QUERIES = 8192  # then what is prepared for each context item costs next to nothing


def _suits_triton(problem: PairsProblem) -> str | None:
    if torch.is_grad_enabled():
        return "it has no gradient"
    if (reason := gpu.refuses(problem.like.device)) is not None:
        return reason
    if any(side.memory.form != "gate" or side.memory.unit_length for side in problem.model.sides):
        return "it has the gated memory alone, with queries of any length"
    regions, words = problem.images.regions, problem.texts.words
    if regions.dtype != words.dtype or regions.dtype == torch.float64:
        return "it takes vectors of one precision, float32 or less"
    longest = max(regions.shape[1], words.shape[1])
    if not 0 < longest <= triton.BIN:
        return f"an item has {longest} vectors, a tile of the kernel 1 to {triton.BIN}"
    if not min(regions.numel(), words.numel()):
        return "there is nothing to compare"
    forms = [side.form for side in problem.model.sides]
    plain = all(form.slope <= 1 and form.pool in ("mean", "sum") for form in forms)
    return None if plain else "it has slopes up to 1, pooled by mean or sum"


@dataclass(frozen=True)
class _MergedMemory:
    """W [q ; a] + b of gate and candidate side by side, in the precision of the products."""

    of_query: Float[Tensor, "2*dim dim"]
    of_context: Float[Tensor, "2*dim dim"]
    bias: Float[Tensor, " 2*dim"]

    @classmethod
    def of(cls, memory: Any, dtype: torch.dtype) -> _MergedMemory:
        """From the layers of a model's memory."""
        weight = torch.cat([memory.gate.weight, memory.candidate.weight]).to(dtype)
        bias = torch.cat([memory.gate.bias, memory.candidate.bias]).to(dtype)
        return cls(weight[:, : memory.dim], weight[:, memory.dim :], bias)


def triton_steps(problem: PairsProblem, fused: bool | None = None) -> Float[Tensor, "image text"]:
    """Σ_k F_k of words and of regions, whichever the model has attend."""
    tables = [_triton_side(side, problem, fused) for side in problem.model.sides]
    return torch.stack(tables).sum(dim=0)


def _triton_side(side: Any, problem: PairsProblem, fused: bool | None) -> Float[Tensor, "image text"]:
    """In large tiles without padding, within the budget.

    `fused`: what was attended to comes into memory in a kernel, rather than by a product before it; in 16 bits unless
    told otherwise.
    """
    from saccade.ops.triton.memory_steps import FUSED_MULTIPLE, StepContext, StepQueries, power_of_two_from_16

    asking, asked = roles(problem.images, problem.texts, side.words_attend)
    queries, query_mask, context, context_mask = asking.vectors, asking.mask, asked.vectors, asked.mask
    device, dim = queries.device, queries.shape[-1]
    dtype = product_dtype(queries)
    element, room = torch.finfo(dtype).bits // 8, problem.budget * 7 // 8
    fused = (dtype in REDUCED if fused is None else fused) and dim % FUSED_MULTIPLE == 0
    table = torch.zeros(len(context), len(queries), device=device)
    place, query_counts = query_mask.flatten().nonzero()[:, 0], query_mask.sum(dim=1).tolist()
    counts, order = context_mask.sum(dim=1).sort(descending=True, stable=True)
    groups = runs([power_of_two_from_16(count) for count in counts.tolist()])
    own_first = (~context_mask).byte().sort(dim=1, stable=True).indices  # a context item's real vectors before padding

    def row_bytes(parts: int) -> int:
        """Of a query and a context item: it, what it brings into an update, and its scores."""
        return element * (3 * dim + 4 * parts)

    with torch.autocast(device.type, enabled=False), gpu.on_gpu_of(queries):
        memory = _MergedMemory.of(side.memory, dtype)
        for items, rows in neighbours(query_counts, min(TILE_QUERIES, room // 16 // row_bytes(groups[0][2]))):
            vectors = queries.flatten(0, 1).index_select(0, place[rows])
            length = torch.linalg.vector_norm(vectors, dim=-1, dtype=torch.float32)
            start = torch.tensor([0, *accumulate(query_counts[items])], dtype=torch.int32).to(device)
            step_queries = StepQueries(vectors.to(dtype), length, start, max(query_counts[items]))
            recalled = F.linear(step_queries.vectors, memory.of_query)[None]
            for begin, end, parts in groups:
                own_bytes = parts * (3 * dim * (4 + element) + 4 * parts)  # of a context item, while it is prepared
                many = max(1, room // (len(vectors) * row_bytes(parts) + own_bytes))
                for here in range(begin, end, many):
                    some = order[here : min(end, here + many)]
                    chosen = own_first[some, :parts]
                    real = context_mask[some].gather(1, chosen)[..., None]
                    padded = context[some[:, None], chosen].masked_fill_(~real, 0.0)
                    padded = F.pad(padded, (0, 0, 0, parts - padded.shape[1]))
                    gram = torch.bmm(padded.float(), padded.float().mT)
                    step_context = StepContext(padded.to(dtype), gram, counts[here : here + len(some)].int())
                    steps = step_queries, step_context, recalled, memory, side.form, side.steps, fused
                    table[some, items] = _tile(*steps)
    return table if side.words_attend else table.T


def _tile(
    step_queries: StepQueries,
    step_context: StepContext,
    recalled: Float[Tensor, "1 row offered"],
    memory: _MergedMemory,
    form: AttentionForm,
    steps: int,
    fused: bool,
) -> Float[Tensor, "other item"]:
    from saccade.ops.triton.memory_steps import attend_step, blend, update_queries

    query = step_queries.vectors[None]
    others, towards = len(step_context.vectors), step_context.vectors.mT
    first = scores = torch.bmm(query.expand(others, -1, -1), towards)
    offered = F.linear(step_context.vectors, memory.of_context, memory.bias)  # with b: weights α sum to one
    total = torch.zeros(others, len(step_queries.start) - 1, device=query.device)
    if not len(step_queries.vectors):
        return total
    for step in range(steps):
        shared = step == 0  # at first all context items have the same queries
        weights = None if step + 1 == steps else torch.empty_like(first) if shared else scores
        total += attend_step(step_queries, step_context, scores, first, form, weights)
        if weights is None:
            break  # what is attended to last is remembered by nobody
        mixed = recalled if shared else F.linear(query, memory.of_query)
        if fused:
            kept, scores = update_queries(mixed, query, weights, offered, step_context, shared, keep=step + 2 < steps)
            query = query if kept is None else kept
        else:
            mixed = torch.baddbmm(mixed, weights, offered) if shared else mixed.baddbmm_(weights, offered)
            query = blend(mixed, query, shared)
            scores = torch.bmm(query, towards)
        del mixed  # before the next is made: these are the largest
    return total


def runs(values: list[int]) -> list[tuple[int, int, int]]:
    """Where each run of equal values begins and ends, and the value."""
    edges = [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1]), len(values)]
    return [(begin, end, values[begin]) for begin, end in pairwise(edges) if begin < end]


def _suits_one_step(problem: PairsProblem) -> str | None:
    forgets = all(side.memory.form == "none" for side in problem.model.sides)
    return None if forgets else "queries change from step to step"


def _one_step(problem: PairsProblem) -> Float[Tensor, "image text"]:
    """Without a memory all steps are the first one, which is SCAN's."""
    tables = []
    for side in problem.model.sides:
        sides = roles(problem.images, problem.texts, side.words_attend)
        table = side.steps * attended_similarity(*sides, side.form, problem.budget)
        tables.append(table.T if side.words_attend else table)
    return torch.stack(tables).sum(dim=0)


RECURRENT_ATTENTION: Operator[PairsProblem, Tensor] = Operator(
    "recurrent_attention",
    (
        Backend("triton", _suits_triton, triton_steps, gpu.triton_unavailable),
        Backend("attended similarity", _suits_one_step, _one_step),
        Backend("torch", anything, ALL_PAIRS),
    ),
    torch.bfloat16,
)
