"""The launches of the MaxSim kernels: in what blocks codes go through them, and the words as they want them.

The words of a batch of queries are padded, rounded and put into bytes once for a search. How many words each query has
is known on the host, so that no GPU is waited for: one small table goes there and one kernel does the rest.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from saccade.search.maxsim import QueryWords
from saccade.search.region_codes import RegionCodes
from saccade.search.triton import CHUNK, MAX_NARROW_DIM, MAX_WORDS, power_of_two
from saccade.search.triton.maxsim import chosen_kernel, maxsim_kernel, word_blocks


@dataclass(frozen=True)
class Shape:
    """How the kernel cuts its work: pictures of a block, warps, and blocks of codes on their way at once."""

    pictures: int = 64
    warps: int = 4
    stages: int = 3
    bulk: bool = True  # fetch with the tensor memory accelerator where the codes allow it


def shape_for(codes: RegionCodes) -> Shape:
    """What is quick for such codes: bytes are so soon multiplied that more of them must be on their way."""
    if codes.dim > 256:
        return Shape(pictures=128, warps=8)
    return Shape(stages=6) if codes.vectors.dtype == torch.int8 and codes.regions is not None else Shape()


@dataclass(frozen=True)
class LaunchGroup:
    """Queries of one launch: as many as registers hold words of."""

    first: int  # query
    stop: int
    row: int  # of the tables of words
    parts: tuple[int, int, int]  # blocks of words, padding included

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + sum(self.parts))


@dataclass(frozen=True)
class PreparedWords:
    """The words of all queries on a device, each launch's padded to blocks that Triton knows."""

    lengths: tuple[int, ...]
    groups: tuple[LaunchGroup, ...]
    table: Int[Tensor, "5 query"]  # see `words_kernel`
    halves: Shaped[Tensor, "row dim"]  # in half precision; empty if not wanted
    wholes: Shaped[Tensor, "row dim"]  # in bytes; empty if not wanted
    scale: Float[Tensor, " row"]  # of bytes
    owner: Int[Tensor, " row"]
    off: Float[Tensor, " query"]  # Σ|q − q̂| of bytes
    size: Float[Tensor, " query"]  # Σ|q|


class TileScores(NamedTuple):
    """MaxSim of each query with the pictures of a tile."""

    scores: Float[Tensor, "query picture"]
    peaks: Float[Tensor, "query block"]  # the best score of each block …
    block: int  # … of so many pictures


def words_for(queries: QueryWords, codes: RegionCodes, exact: RegionCodes | None = None) -> PreparedWords:
    """The words as codes of such a kind want them, and the exact ones behind them."""
    integer = codes.vectors.dtype == torch.int8
    source = exact if integer else codes
    half = None if source is None else source.vectors.dtype
    device, dim = queries.words.device, queries.words.shape[1]
    groups, table = _groups(queries.lengths)
    rows = sum(sum(group.parts) for group in groups)
    half_wide, whole_wide = (
        -(-dim // CHUNK) * CHUNK if dim > MAX_NARROW_DIM else max(least, power_of_two(dim)) for least in (16, 32)
    )
    place = torch.from_numpy(table).to(device, non_blocking=True)
    halves = torch.empty(rows if half else 0, half_wide, dtype=half or torch.float16, device=device)
    wholes = torch.empty(rows if integer else 0, whole_wide, dtype=torch.int8, device=device)
    scale = torch.empty(rows, device=device)
    owner = torch.empty(rows, dtype=torch.int32, device=device)
    off, size = torch.empty(2, len(queries), device=device).unbind()
    power = power_of_two(max(half_wide, whole_wide))
    words_kernel[(len(queries),)](
        queries.words.float().contiguous(),
        *(place, halves, wholes, scale, owner, off, size, dim, len(queries)),
        HALF=half_wide if half else 0,
        WHOLE=whole_wide if integer else 0,
        POWER=power,
        ROWS=max(2, 4096 // power),
        num_warps=4,
    )
    return PreparedWords(queries.lengths, groups, place, halves, wholes, scale, owner, off, size)


def _groups(lengths: tuple[int, ...]) -> tuple[tuple[LaunchGroup, ...], np.ndarray]:
    groups, row, first = [], 0, 0
    table = np.zeros((5, len(lengths)), dtype=np.int32)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    while first < len(lengths):
        stop = first + 1
        while stop < len(lengths) and begins[stop + 1] - begins[first] <= MAX_WORDS:
            stop += 1
        parts = word_blocks(max(1, int(begins[stop] - begins[first])))
        table[0, first:stop] = begins[first:stop]
        table[1, first:stop] = table[3, first:stop] = lengths[first:stop]
        table[2, first:stop] = row + begins[first:stop] - begins[first]
        table[4, first:stop] = np.arange(stop - first)
        row += sum(parts)
        table[3, stop - 1] = row - table[2, stop - 1]
        groups.append(LaunchGroup(first, stop, row - sum(parts), parts))
        first = stop
    return tuple(groups), table


@triton.jit
def words_kernel(
    words,  # [word, dim], float32
    table,  # [5, query]: its first word, how many, its first row, how many rows it fills, its number in its launch
    halves,  # [row, HALF]: in the precision of the codes
    wholes,  # [row, WHOLE]: −127..127
    scale,  # [row]: what a whole number is worth
    owner,  # [row]: the query's number in its launch; -1: padding
    off,  # [query]: Σ|q − q̂|, and
    size,  # [query]: Σ|q|, both rounded up
    dim,
    queries,
    HALF: tl.constexpr,  # 0: not wanted
    WHOLE: tl.constexpr,  # 0: not wanted
    POWER: tl.constexpr,  # of two, at least HALF and WHOLE
    ROWS: tl.constexpr,  # at a time
):
    """A program takes a query; the last one of a launch fills the padding, too."""
    query = tl.program_id(0)
    begin = tl.load(table + query)
    length = tl.load(table + queries + query)
    row = tl.load(table + 2 * queries + query)
    rows = tl.load(table + 3 * queries + query)
    number = tl.load(table + 4 * queries + query)
    part = tl.arange(0, POWER)
    missed = tl.zeros((ROWS,), tl.float32)
    long = tl.zeros((ROWS,), tl.float32)
    for start in range(0, rows, ROWS):
        word = start + tl.arange(0, ROWS)
        there = word < length
        inside = word < rows
        target = row + word
        value = tl.load(
            words + (begin + word)[:, None] * dim + part[None, :],
            mask=there[:, None] & (part < dim)[None, :],
            other=0.0,
        )
        tl.store(owner + target, tl.where(there, number, -1), mask=inside)
        if HALF > 0:
            wide = inside[:, None] & (part < HALF)[None, :]
            tl.store(halves + target[:, None] * HALF + part[None, :], value.to(halves.dtype.element_ty), mask=wide)
        if WHOLE > 0:
            unit = tl.max(tl.abs(value), axis=1) / 127
            whole = tl.floor(value / tl.where(unit > 0, unit, 1.0)[:, None] + 0.5)
            whole = tl.minimum(tl.maximum(whole, -127.0), 127.0)
            wide = inside[:, None] & (part < WHOLE)[None, :]
            tl.store(wholes + target[:, None] * WHOLE + part[None, :], whole.to(tl.int8), mask=wide)
            tl.store(scale + target, unit, mask=inside)
            apart = value - whole * unit[:, None]
            missed += tl.sqrt(tl.sum(apart * apart, axis=1))
            long += tl.sqrt(tl.sum(value * value, axis=1))
    if WHOLE > 0:
        most = tl.sum(long, axis=0) * 1.00001
        tl.store(size + query, most)
        tl.store(off + query, tl.sum(missed, axis=0) + 0.00001 * most)  # and what float32 rounds off


def launch(
    queries: QueryWords,
    codes: RegionCodes,
    bound: bool = False,
    shape: Shape | None = None,
    words: PreparedWords | None = None,
) -> TileScores:
    """Score every picture for every query; with `bound`, the most that the exact codes behind bytes could score."""
    shape = shape or shape_for(codes)
    words = words or words_for(queries, codes)
    blocks = -(-len(codes) // shape.pictures)
    scores = torch.empty(len(queries), len(codes), device=codes.vectors.device)
    peaks = torch.empty(len(queries), blocks, device=codes.vectors.device)
    integer, ragged, dim = codes.vectors.dtype == torch.int8, codes.regions is None, codes.dim
    table = words.wholes if integer else words.halves
    wide = table.shape[1]
    chunks = wide // CHUNK if dim > MAX_NARROW_DIM else 0
    whole = not ragged and not chunks and wide == dim and codes.vectors.data_ptr() % 16 == 0
    hopper = not codes.vectors.is_cuda or torch.cuda.get_device_capability(codes.vectors.device) >= (9, 0)
    source: Any = codes.vectors
    if bulk := shape.bulk and whole and hopper:
        from triton.tools.tensor_descriptor import TensorDescriptor

        assert codes.regions is not None
        pitch = dim * codes.regions
        source = TensorDescriptor(codes.vectors, [len(codes), pitch], [pitch, 1], [shape.pictures, dim])
    scale, reach, error = [words.off] * 3 if codes.bounds is None else codes.bounds.unbind()  # read for bytes only
    for group in words.groups:
        own = slice(group.first, group.stop)
        maxsim_kernel[(blocks,)](
            *(source, codes.starts, scale, table[group.rows], words.scale[group.rows], words.owner[group.rows]),
            *(reach, error, words.off[own], words.size[own], scores[own], peaks[own], len(codes)),
            *(codes.regions or 0, dim, blocks, group.stop - group.first),
            DIM=CHUNK if chunks else wide,
            CHUNKS=chunks,
            FIRST=group.parts[0],
            SECOND=group.parts[1],
            THIRD=group.parts[2],
            PICTURES=shape.pictures,
            QUERIES=max(16, power_of_two(group.stop - group.first)),
            PADDED=wide != dim,
            RAGGED=ragged,
            INTEGER=integer,
            BOUND=bound and integer,
            TMA=bulk,
            STAGES=shape.stages,
            ADDEND=tl.bfloat16 if codes.vectors.is_cuda else tl.float32,
            num_warps=shape.warps,
            num_stages=shape.stages,
        )
    return TileScores(scores, peaks, shape.pictures)


def launch_chosen(
    queries: QueryWords,
    codes: RegionCodes,
    chosen: Int[Tensor, "query choice"],
    counts: Int[Tensor, " query"] | None = None,
    keys: bool = False,
    words: PreparedWords | None = None,
    shape: Shape | None = None,
) -> Shaped[Tensor, "query choice"]:
    """MaxSim of each query with the first `counts` pictures chosen for it, codes of half precision; −∞ with no picture.

    With `keys`, whole numbers that are sorted by score and then by picture (see `lists.py`).
    """
    words = words or words_for(queries, codes)
    wide, longest = (max(16, power_of_two(size)) for size in (codes.dim, max(queries.lengths)))
    if shape is None:  # few pictures a program, so that even a short list gives work to the whole GPU
        warps = next(warps for warps in (2, 4, 8) if longest * wide <= 2048 * warps or warps == 8)
        shape = Shape(pictures=16, warps=warps, stages=4 if wide <= 256 else 2, bulk=False)
    found = torch.empty(chosen.shape, dtype=torch.int64 if keys else torch.float32, device=chosen.device)
    chosen_kernel[(-(-chosen.shape[1] // shape.pictures), len(queries))](
        *(codes.vectors, codes.starts, words.halves, words.table, chosen.contiguous()),
        *(words.table if counts is None else counts, found),
        *(chosen.shape[1], codes.regions or 0, codes.dim, words.halves.shape[1], len(queries)),
        DIM=wide,
        WORDS=longest,
        PICTURES=shape.pictures,
        RAGGED=codes.regions is None,
        COUNTED=counts is not None,
        KEYS=keys,
        STAGES=shape.stages,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
    return found
