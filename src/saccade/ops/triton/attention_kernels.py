"""The kernels of attended similarity: all that follows the matrix product of the scores, and its gradient.

Rows are queries and columns are context vectors. `attend_scores` stores the pooled similarity of every pair of items;
`score_gradient` goes from the gradient of these to that of the scores, tile by tile. There everything is made again
from the scores; what is derived is, with e the weights before they are divided by their sum, t = Ge and
R = Σes / (|q| √(Σet)):

    dR        from the pool (logsumexp: dS · exp(λ₂ (R − S)))
    ds        = dR e / (|q| √Σet)  +  what comes through the weights
    d log e   = e (dR s / (|q| √Σet) − dR R t / Σet)           then back through the normaliser
    dG        = −½ dR R e eᵀ / Σet                             as a product of two tables, LEFT and RIGHT, per bin
    d|q|      = −Σ dR R / |q|                                  summed over the context items: PART, one row per bin
"""

# mypy: ignore-errors
# ruff: noqa: SIM300
from __future__ import annotations

import triton
import triton.language as tl

from saccade.ops.triton.tile import (
    LOG2E,
    TINY,
    best_of_context,
    clip,
    largest_of_context,
    largest_of_queries,
    logits,
    members,
    members_across,
    pool_tile,
    power,
    product,
    scale_of,
    sums_of_queries,
    weigh,
)


@triton.jit(do_not_specialize=["out_row", "out_column", "first_bin", "last_bin", "first_row"])
def attend_scores(
    SCORES,
    score_row,
    first_bin,
    first_row,
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
    sharpness,
    slope,
    pool_sharpness,
    OUT,
    out_row,
    out_column,
    last_bin,
    NORMALISER: tl.constexpr,
    CHOICE: tl.constexpr,
    POOL: tl.constexpr,
    PLACES: tl.constexpr,  # of a bin, on either side
    SLOTS: tl.constexpr,  # items that a bin can have
    Q_WIDE: tl.constexpr,
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
    """Scores of the query rows from `first_row` on are in memory: pool the bins from `first_bin` to `last_bin`.

    One program has a bin of the context (its Gram matrix stays in fast memory) and goes through some bins of queries.
    """
    c_bin = tl.program_id(0)
    places = tl.arange(0, PLACES)
    gram = tl.load(GRAM + c_bin.to(tl.int64) * PLACES * PLACES + places[:, None] * PLACES + places[None, :])
    c_segment = tl.load(C_SEGMENT + c_bin * PLACES + places)
    c_members = members(c_segment, SLOTS, INSIDE)
    c_item = tl.load(C_ITEM + c_bin * SLOTS + tl.arange(0, SLOTS))
    c_start = tl.multiple_of(tl.load(C_START + c_bin), ALIGN)
    width = tl.multiple_of((tl.load(C_FILL + c_bin) + ALIGN - 1) // ALIGN * ALIGN, ALIGN)
    begin = first_bin + tl.program_id(1) * LOOP
    for q_bin in tl.range(begin, tl.minimum(begin + LOOP, last_bin), num_stages=STAGES):
        q_start, fill = tl.load(Q_START + q_bin), tl.load(Q_FILL + q_bin)
        queries = tl.arange(0, PLACES)
        place = SCORES + (q_start - first_row + queries)[:, None].to(tl.int64) * score_row + (c_start + places)[None, :]
        s = tl.load(place, mask=(queries < fill)[:, None] & (places < width)[None, :], other=0.0).to(tl.float32)
        q_segment = tl.load(Q_SEGMENT + q_bin * PLACES + queries)
        q_across = members_across(q_segment, Q_WIDE, INSIDE)
        if CHOICE == "max":
            match = best_of_context(s, c_segment, C_USED, SLOTS)
        else:
            q_members = members(q_segment, Q_WIDE, INSIDE)
            x = logits(s, q_across, q_members, q_segment, sharpness, slope, NORMALISER, Q_USED, INSIDE, NATIVE)
            e = weigh(x, c_segment, C_USED, BOUNDED, NATIVE)
            found = product(e * s, c_members, INSIDE)
            squared = product(e * product(e, gram, INSIDE), c_members, INSIDE)
            inverse = tl.load(Q_INVERSE + q_bin * PLACES + queries)
            match = found * tl.rsqrt(tl.maximum(squared, TINY)) * inverse[:, None]
        pooled = pool_tile(match, q_across, q_segment, pool_sharpness, POOL, SHIFT, Q_USED, Q_WIDE, INSIDE, NATIVE)
        slots = tl.arange(0, Q_WIDE)
        q_item = tl.load(Q_ITEM + q_bin * SLOTS + slots, mask=slots < SLOTS, other=-1)
        target = OUT + q_item[:, None].to(tl.int64) * out_row + c_item[None, :].to(tl.int64) * out_column
        tl.store(target, pooled, mask=(q_item >= 0)[:, None] & (c_item >= 0)[None, :])


@triton.jit
def match_gradient(
    match,
    pooled,
    gradient,
    count,
    q_across,
    q_members,
    q_segment,
    pool_sharpness,
    POOL: tl.constexpr,
    Q_USED: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """dR [query, slot of the context item]."""
    if POOL == "logsumexp":
        found = gradient * power((match - pooled) * (pool_sharpness * LOG2E), NATIVE)
    elif POOL == "max":
        best = (match == largest_of_queries(match, q_segment, Q_USED)).to(tl.float32)
        ties = sums_of_queries(q_across, best, INSIDE)
        found = gradient * best / tl.maximum(product(q_members, ties, INSIDE), 1.0)
    elif POOL == "mean":
        found = gradient / tl.maximum(count, 1).to(tl.float32)[:, None]
    else:
        found = gradient
    return tl.where((q_segment >= 0)[:, None], found, 0.0)


@triton.jit
def through_normaliser(
    s,
    x,
    dx,
    q_across,
    q_members,
    sharpness,
    slope,
    NORMALISER: tl.constexpr,
    INSIDE: tl.constexpr,
):
    """ds from the gradient of the logits λ₁s'; x are the logits in units of log₂."""
    if NORMALISER == "softmax":
        share = x / (LOG2E * sharpness)
        spread = product(q_across, dx * share, INSIDE)
        found = sharpness * share * (dx - product(q_members, spread, INSIDE))
    elif NORMALISER == "clipped" or NORMALISER == "none":
        found = sharpness * dx
    else:
        clipped = clip(s, slope, NORMALISER)
        spread = product(q_across, dx * clipped, INSIDE)
        if NORMALISER == "clipped_l2" or NORMALISER == "l2":
            total = product(q_across, clipped * clipped, INSIDE)
            scale = scale_of(total, sharpness, NORMALISER, INSIDE)
            again = spread * scale * scale / (sharpness * tl.sqrt(tl.maximum(total, TINY)))
            found = dx * product(q_members, scale, INSIDE) - clipped * product(q_members, again, INSIDE)
        else:
            total = product(q_across, tl.abs(clipped), INSIDE)
            scale = scale_of(total, sharpness, NORMALISER, INSIDE)
            again = product(q_members, spread * scale * scale / sharpness, INSIDE)
            sign = tl.where(clipped > 0, again, tl.where(clipped < 0, -again, 0.0))
            found = dx * product(q_members, scale, INSIDE) - sign
    if NORMALISER == "clipped_l2" or NORMALISER == "clipped_l1" or NORMALISER == "clipped":
        found = tl.where(s > 0, found, found * slope)
    return found


@triton.jit(do_not_specialize=["gradient_row", "gradient_column", "others", "part_row", "first_bin", "first_row"])
def score_gradient(
    SCORES,
    score_row,
    first_bin,
    first_row,
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
    sharpness,
    slope,
    pool_sharpness,
    Q_LENGTH,
    POOLED,
    GRADIENT,
    gradient_row,
    gradient_column,
    others,
    D_SCORES,
    LEFT,
    RIGHT,
    side_row,
    PART,
    part_row,
    NORMALISER: tl.constexpr,
    CHOICE: tl.constexpr,
    POOL: tl.constexpr,
    PLACES: tl.constexpr,  # of a bin, on either side
    SLOTS: tl.constexpr,  # items that a bin can have
    Q_WIDE: tl.constexpr,
    Q_USED: tl.constexpr,
    C_USED: tl.constexpr,
    BOUNDED: tl.constexpr,
    SHIFT: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
    ALIGN: tl.constexpr,
):
    """One tile of scores: D_SCORES beside SCORES, LEFT and RIGHT with every bin at its full width."""
    c_bin, q_bin = tl.program_id(0), first_bin + tl.program_id(1)
    places, queries = tl.arange(0, PLACES), tl.arange(0, PLACES)
    c_segment = tl.load(C_SEGMENT + c_bin * PLACES + places)
    c_members = members(c_segment, SLOTS, INSIDE)
    c_item = tl.load(C_ITEM + c_bin * SLOTS + tl.arange(0, SLOTS))
    q_segment = tl.load(Q_SEGMENT + q_bin * PLACES + queries)
    q_across, q_members = members_across(q_segment, Q_WIDE, INSIDE), members(q_segment, Q_WIDE, INSIDE)
    q_item = tl.load(Q_ITEM + q_bin * SLOTS + tl.maximum(q_segment, 0))

    c_start = tl.multiple_of(tl.load(C_START + c_bin), ALIGN)
    width = tl.multiple_of((tl.load(C_FILL + c_bin) + ALIGN - 1) // ALIGN * ALIGN, ALIGN)
    q_start, fill = tl.load(Q_START + q_bin), tl.load(Q_FILL + q_bin)
    rows = (q_start - first_row + queries)[:, None].to(tl.int64)
    place = rows * score_row + (c_start + places)[None, :]
    there = (queries < fill)[:, None] & (places < width)[None, :]
    s = tl.load(SCORES + place, mask=there, other=0.0).to(tl.float32)

    pair = q_item[:, None].to(tl.int64), c_item[None, :].to(tl.int64)
    real = (q_segment >= 0)[:, None] & (c_item >= 0)[None, :]
    gradient = tl.load(GRADIENT + pair[0] * gradient_row + pair[1] * gradient_column, mask=real, other=0.0)
    pooled = tl.load(POOLED + pair[0] * others + pair[1], mask=real, other=0.0)
    count = tl.load(Q_LENGTH + q_item)

    if CHOICE == "max":
        match = best_of_context(s, c_segment, C_USED, SLOTS)
        d_match = match_gradient(
            match, pooled, gradient, count, q_across, q_members, q_segment, pool_sharpness, POOL, Q_USED, INSIDE, NATIVE
        )
        d_match = tl.where(real, d_match, 0.0)
        best = (s == largest_of_context(s, c_segment, C_USED)).to(tl.float32)
        ties = tl.maximum(product(best, c_members, INSIDE), 1.0)
        ds = best * product(d_match / ties, members_across(c_segment, SLOTS, INSIDE), INSIDE)
    else:
        gram = tl.load(GRAM + c_bin.to(tl.int64) * PLACES * PLACES + places[:, None] * PLACES + places[None, :])
        x = logits(s, q_across, q_members, q_segment, sharpness, slope, NORMALISER, Q_USED, INSIDE, NATIVE)
        e = weigh(x, c_segment, C_USED, BOUNDED, NATIVE)
        turned = product(e, gram, INSIDE)
        inverse = tl.load(Q_INVERSE + q_bin * PLACES + queries)[:, None]
        size = tl.rsqrt(tl.maximum(product(e * turned, c_members, INSIDE), TINY))
        size = tl.where(real, size, 0.0)
        match = product(e * s, c_members, INSIDE) * size * inverse
        d_match = match_gradient(
            match, pooled, gradient, count, q_across, q_members, q_segment, pool_sharpness, POOL, Q_USED, INSIDE, NATIVE
        )
        d_match = tl.where(real, d_match, 0.0)
        tl.store(
            PART + c_bin * part_row + q_start - first_row + queries, tl.sum(d_match * match, axis=1), queries < fill
        )
        c_across = members_across(c_segment, SLOTS, INSIDE)
        right = e * product(size, c_across, INSIDE)  # e / √Σet
        lean = product(-d_match * match * size, c_across, INSIDE)
        own = product(d_match * inverse, c_across, INSIDE)
        side = rows * side_row + c_bin * PLACES + places[None, :]
        tl.store(LEFT + side, (e * lean).to(LEFT.dtype.element_ty), mask=(queries < fill)[:, None])
        tl.store(RIGHT + side, right.to(RIGHT.dtype.element_ty), mask=(queries < fill)[:, None])
        ds = right * own
        dx = ds * s + lean * right * turned
        through = through_normaliser(s, x, dx, q_across, q_members, sharpness, slope, NORMALISER, INSIDE)
        if INSIDE != tl.float32 and NORMALISER != "clipped" and NORMALISER != "none":
            through = tl.where((count > 1)[:, None], through, 0.0)  # a norm of one query is itself: rounding alone
        ds += through
    tl.store(D_SCORES + place, ds.to(D_SCORES.dtype.element_ty), mask=there)
