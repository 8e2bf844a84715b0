"""The words of a batch of queries as the MaxSim kernels want them, in one launch: padded, rounded, in bytes."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


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
