"""The words of a batch of queries as the MaxSim kernels want them: padded, rounded, in bytes; made once for a search.

How many words each query has is known on the host, so that nothing has to be asked of a GPU: one small table goes there
and one kernel does the rest.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from saccade.search.maxsim import QueryWords
from saccade.search.triton import CHUNK, MAX_NARROW_DIM, MAX_WORDS, power_of_two
from saccade.search.triton.maxsim import word_blocks


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


def prepare_words(queries: QueryWords, half: torch.dtype | None, integer: bool) -> PreparedWords:
    """Words in this precision, in bytes, or both."""
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
        place,
        halves,
        wholes,
        scale,
        owner,
        off,
        size,
        dim,
        len(queries),
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
