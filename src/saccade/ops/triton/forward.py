"""The forward kernel: all that follows the matrix product, which a library makes.

One program has a bin of the context (its Gram matrix stays in fast memory) and goes through some bins of queries.
Rows are queries and columns are context vectors; what is stored is the pooled similarity of every pair of items.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from saccade.ops.triton.tile import TINY, best_of_context, logits, members, members_across, pool_tile, product, weigh


@triton.jit
def attend_tile(
    s,
    gram,
    c_segment,
    c_members,
    c_item,
    q_bin,
    Q_SEGMENT,
    Q_ITEM,
    Q_INVERSE,
    OUT,
    out_row,
    out_column,
    sharpness,
    slope,
    pool_sharpness,
    NORMALISER: tl.constexpr,
    CHOICE: tl.constexpr,
    POOL: tl.constexpr,
    BQ: tl.constexpr,
    BC: tl.constexpr,
    Q_SLOTS: tl.constexpr,
    Q_WIDE: tl.constexpr,
    C_SLOTS: tl.constexpr,
    Q_USED: tl.constexpr,
    C_USED: tl.constexpr,
    BOUNDED: tl.constexpr,
    SHIFT: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """From scores [query, context vector] to what is stored for them."""
    queries = q_bin * BQ + tl.arange(0, BQ)
    q_segment = tl.load(Q_SEGMENT + queries)
    q_across = members_across(q_segment, Q_WIDE, INSIDE)
    if CHOICE == "max":
        match = best_of_context(s, c_segment, C_USED, C_SLOTS)
    else:
        q_members = members(q_segment, Q_WIDE, INSIDE)
        x = logits(s, q_across, q_members, q_segment, sharpness, slope, NORMALISER, Q_USED, INSIDE, NATIVE)
        e = weigh(x, c_segment, C_USED, BOUNDED, NATIVE)
        found = product(e * s, c_members, INSIDE)
        squared = product(e * product(e, gram, INSIDE), c_members, INSIDE)
        inverse = tl.load(Q_INVERSE + queries)
        match = found * tl.rsqrt(tl.maximum(squared, TINY)) * inverse[:, None]
    pooled = pool_tile(match, q_across, q_segment, pool_sharpness, POOL, SHIFT, Q_USED, Q_WIDE, INSIDE, NATIVE)
    slots = tl.arange(0, Q_WIDE)
    q_item = tl.load(Q_ITEM + q_bin * Q_SLOTS + slots, mask=slots < Q_SLOTS, other=-1)
    place = OUT + q_item[:, None].to(tl.int64) * out_row + c_item[None, :].to(tl.int64) * out_column
    tl.store(place, pooled, mask=(q_item >= 0)[:, None] & (c_item >= 0)[None, :])


@triton.jit(do_not_specialize=["out_row", "out_column", "first_bin", "last_bin", "first_row"])
def attend_scores(
    SCORES,
    score_row,
    GRAM,
    Q_START,
    Q_FILL,
    Q_SEGMENT,
    Q_ITEM,
    Q_INVERSE,
    C_START,
    C_FILL,
    C_SEGMENT,
    C_ITEM,
    OUT,
    out_row,
    out_column,
    first_bin,
    last_bin,
    first_row,
    sharpness,
    slope,
    pool_sharpness,
    NORMALISER: tl.constexpr,
    CHOICE: tl.constexpr,
    POOL: tl.constexpr,
    BQ: tl.constexpr,
    BC: tl.constexpr,
    Q_SLOTS: tl.constexpr,
    Q_WIDE: tl.constexpr,
    C_SLOTS: tl.constexpr,
    Q_USED: tl.constexpr,
    C_USED: tl.constexpr,
    BOUNDED: tl.constexpr,
    SHIFT: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
    ALIGN: tl.constexpr,
    LOOP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Scores of the query rows from `first_row` on are in memory: pool the bins from `first_bin` to `last_bin`."""
    c_bin = tl.program_id(0)
    places = tl.arange(0, BC)
    gram = tl.load(GRAM + c_bin.to(tl.int64) * BC * BC + places[:, None] * BC + places[None, :])
    c_segment = tl.load(C_SEGMENT + c_bin * BC + places)
    c_members = members(c_segment, C_SLOTS, INSIDE)
    c_item = tl.load(C_ITEM + c_bin * C_SLOTS + tl.arange(0, C_SLOTS))
    c_start = tl.multiple_of(tl.load(C_START + c_bin), ALIGN)
    width = tl.multiple_of((tl.load(C_FILL + c_bin) + ALIGN - 1) // ALIGN * ALIGN, ALIGN)
    begin = first_bin + tl.program_id(1) * LOOP
    for q_bin in tl.range(begin, tl.minimum(begin + LOOP, last_bin), num_stages=STAGES):
        q_start, fill = tl.load(Q_START + q_bin), tl.load(Q_FILL + q_bin)
        queries = tl.arange(0, BQ)
        place = SCORES + (q_start - first_row + queries)[:, None].to(tl.int64) * score_row + (c_start + places)[None, :]
        s = tl.load(place, mask=(queries < fill)[:, None] & (places < width)[None, :], other=0.0).to(tl.float32)
        attend_tile(
            s, gram, c_segment, c_members, c_item, q_bin, Q_SEGMENT, Q_ITEM, Q_INVERSE, OUT, out_row, out_column,
            sharpness, slope, pool_sharpness, NORMALISER, CHOICE, POOL, BQ, BC, Q_SLOTS, Q_WIDE, C_SLOTS, Q_USED,
            C_USED, BOUNDED, SHIFT, INSIDE, NATIVE,
        )  # fmt: skip
