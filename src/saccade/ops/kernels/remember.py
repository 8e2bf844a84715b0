"""How the kernels of `blend.py` are called, for the queries of all pairs without a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.ops.kernels import blend
from saccade.ops.pairwise import AttentionForm

REDUCED = (torch.bfloat16, torch.float16)
WIDE = 64  # queries of this width or a multiple can be updated in one kernel
ROWS, COLUMNS, WARPS, STAGES = 128, 32, 8, 3  # how it cuts them: two programs at once have room on a Hopper's core
_launched: Any = blend


@dataclass(frozen=True)
class Asked:
    """Context items, each in a power of two of places: its own vectors first, then zeros."""

    vectors: Float[Tensor, "other part dim"]
    gram: Float[Tensor, "other part part"]  # float32
    count: Int[Tensor, " other"]  # int32: vectors of its own


@dataclass(frozen=True)
class Asking:
    """The first queries of some items, one after the other."""

    vectors: Float[Tensor, "row dim"]
    length: Float[Tensor, " row"]  # float32: |q|
    start: Int[Tensor, " item+1"]  # int32: the first row of each item, and the end
    longest: int  # queries that an item has at most


def look(
    asking: Asking,
    asked: Asked,
    scores: Float[Tensor, "other row part"],
    first: Float[Tensor, "other row part"],
    form: AttentionForm,
    weights: Float[Tensor, "other row part"] | None,
) -> Float[Tensor, "other item"]:
    """Of every pair the mean (or sum) of cosines of this look; its weights are written into `weights`."""
    (others, rows, parts), items = scores.shape, len(asking.start) - 1
    found = torch.empty(others, items, device=scores.device)
    queries = at_least_sixteen(asking.longest)
    _launched.look_kernel[others * items,](
        scores,
        first,
        scores if weights is None else weights,
        asked.gram,
        asking.length,
        asking.start,
        asked.count,
        found,
        rows,
        items,
        form.sharpness,
        form.slope,
        NORMALISER=form.normaliser,
        MEAN=form.pool == "mean",
        REMEMBER=weights is not None,
        QUERIES=queries,
        PARTS=parts,
        PRECISION="tf32" if scores.dtype in REDUCED else "tf32x3",
        num_warps=warps(queries * parts),
    )
    return found


def update(
    mixed: Float[Tensor, "#other row offered"],
    query: Float[Tensor, "#other row dim"],
    weights: Float[Tensor, "other row part"],
    offered: Float[Tensor, "other part offered"],
    asked: Asked,
    shared: bool,
    keep: bool,
) -> tuple[Float[Tensor, "other row dim"] | None, Float[Tensor, "other row part"]]:
    """The queries after a look, if they are to be kept, and their scores with the context.

    Queries that are not shared by all context items are written over. `mixed` is what they bring into it.
    """
    (others, rows, parts), dim = weights.shape, query.shape[-1]
    updated = query.new_empty(others, rows, dim) if keep and shared else query
    scores = torch.empty_like(weights)
    if others * rows:
        _launched.update_kernel[others * -(-rows // ROWS),](
            mixed,
            query,
            weights,
            offered,
            asked.vectors,
            updated,
            scores,
            rows,
            others,
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


def blend_into(
    mixed: Float[Tensor, "other row offered"], query: Float[Tensor, "#other row dim"], shared: bool
) -> Float[Tensor, "other row dim"]:
    """q' from what the gate and the candidate are made of; it takes the place of queries that are not shared."""
    (others, rows, _), dim = mixed.shape, query.shape[-1]
    updated = query.new_empty(others, rows, dim) if shared else query
    columns = min(1024, 1 << (dim - 1).bit_length())
    if others * rows:
        _launched.blend_kernel[others * rows, -(-dim // columns)](
            mixed, query, updated, rows, dim, SHARED=shared, COLUMNS=columns
        )
    return updated


def warps(places: int) -> int:
    """For a look of so many places."""
    return 1 if places <= 512 else 2 if places <= 1024 else 4


def at_least_sixteen(size: int) -> int:
    """The power of two that holds so many, of which a product in a kernel needs sixteen."""
    return max(16, 1 << (size - 1).bit_length()) if size else 16
