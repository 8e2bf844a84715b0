"""MaxSim on a GPU in one kernel: products, the best region of every word, and the sum over a query's words.

A program takes a block of pictures and walks over their regions: region 0 of all of them, then region 1, … Each step is
one product [picture, dim] × [dim, word] on the tensor cores, and `best = max(best, product)` happens where the product
lies, in registers: no value crosses from thread to thread until the words are summed, once per picture. The words stay
in shared memory for the whole walk, so every code is read once and nothing but scores is written.

Words are cut into blocks of powers of two (208 = 128 + 64 + 16), because Triton knows no other sizes. The sum over a
query's words is a product with a table of zeros and ones; the best scores go into it as three bfloat16 parts, which
together hold all 24 bits of a float32.

Integer codes are multiplied as integers: one scale a picture lets the best region be chosen before scaling.

Wide codes have too many dimensions for all words to stay in shared memory: both come chunk by chunk.
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools
from functools import lru_cache

import triton
import triton.language as tl

BLOCK_SIZES = (128, 64, 32, 16)


@lru_cache(maxsize=512)
def word_blocks(words: int) -> tuple[int, int, int]:
    """Up to three powers of two that hold so many words with the least padding."""
    choices = (c for c in itertools.product(BLOCK_SIZES, (*BLOCK_SIZES, 0), (*BLOCK_SIZES, 0)) if c[0] >= c[1] >= c[2])
    return min((c for c in choices if words <= sum(c)), key=lambda c: (sum(c), -c[0], c))


@triton.jit
def maxsim_kernel(
    codes,  # [picture, region, dim], or rows [row, dim] with `starts`; a tensor descriptor if TMA
    starts,  # [picture + 1]: where each picture's rows begin, if RAGGED
    scale,  # [picture], if the codes are integers
    words,  # [word, DIM], padded to the word blocks; of wide codes [word, CHUNKS · DIM]
    word_scale,  # [word], if the codes are integers
    owner,  # [word]: whose word it is; -1: padding
    reach,  # [picture], and
    error,  # [picture]: how far a picture's codes reach and how far they are off, if BOUND
    word_error,  # [query], and
    word_reach,  # [query]: the same of the words
    scores,  # [query, picture]
    peaks,  # [query, block]: the best score of each block
    pictures,
    regions,
    dim,
    blocks,
    queries,
    DIM: tl.constexpr,
    CHUNKS: tl.constexpr,  # of DIM dimensions, of wide codes; 0: all are read at once
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    THIRD: tl.constexpr,
    PICTURES: tl.constexpr,
    QUERIES: tl.constexpr,
    PADDED: tl.constexpr,  # DIM, a power of two, is more than dim
    RAGGED: tl.constexpr,
    INTEGER: tl.constexpr,
    BOUND: tl.constexpr,
    TMA: tl.constexpr,
    STAGES: tl.constexpr,
    ADDEND: tl.constexpr,  # bfloat16; float32 in the interpreter, which multiplies no bfloat16
):
    block = tl.program_id(0)
    picture = block * PICTURES + tl.arange(0, PICTURES)
    there = picture < pictures
    place = tl.minimum(picture, pictures - 1)
    part = tl.arange(0, DIM)
    if INTEGER:
        number = tl.int32
        least = -2147483648
    else:
        number = tl.float32
        least = float("-inf")
    best_first = tl.full((PICTURES, FIRST), least, number)
    best_second, best_third = best_first, best_first  # unless there are so many words
    if SECOND > 0:
        best_second = tl.full((PICTURES, SECOND), least, number)
    if THIRD > 0:
        best_third = tl.full((PICTURES, THIRD), least, number)
    if CHUNKS == 0:
        first = tl.load(words + tl.arange(0, FIRST)[None, :] * DIM + part[:, None])
        if SECOND > 0:
            second = tl.load(words + (FIRST + tl.arange(0, SECOND))[None, :] * DIM + part[:, None])
        if THIRD > 0:
            third = tl.load(words + (FIRST + SECOND + tl.arange(0, THIRD))[None, :] * DIM + part[:, None])

    steps = regions
    count = tl.full((PICTURES,), regions, tl.int32)
    rows = codes
    if CHUNKS > 0:
        start = tl.load(starts + place)
        count = (tl.load(starts + place + 1) - start).to(tl.int32)
        steps = tl.max(count, axis=0)
        rows = codes + start[:, None] * dim + part[None, :]
        columns = words + part[:, None]
    elif RAGGED:  # rows are counted from the block's first one, which 32 bits hold: registers are scarce
        final = (
            tl.load(starts + pictures) - 1
        )  # an empty picture shows some other's row, and scores −∞ whatever that is
        start = tl.load(starts + place)
        count = (tl.load(starts + place + 1) - start).to(tl.int32)
        steps = tl.max(count, axis=0)
        last = tl.maximum(count - 1, 0)
        origin = tl.minimum(tl.load(starts + block * PICTURES), final)
        offset = (tl.minimum(start, final) - origin).to(tl.int32)
        rows = codes + origin * dim
    elif not TMA:
        rows = codes + place.to(tl.int64)[:, None] * (regions * dim) + part[None, :]

    for region in tl.range(0, steps, num_stages=1 if CHUNKS > 0 else STAGES):
        if CHUNKS > 0:  # scores are summed over a region's chunks before they compete
            shown = (tl.maximum(tl.minimum(region, count - 1), 0) * dim)[:, None]
            score_first = tl.zeros((PICTURES, FIRST), number)
            if SECOND > 0:
                score_second = tl.zeros((PICTURES, SECOND), number)
            if THIRD > 0:
                score_third = tl.zeros((PICTURES, THIRD), number)
            for chunk in tl.range(0, CHUNKS, num_stages=STAGES):
                inside = (chunk * DIM + part < dim)[None, :] & (count > 0)[:, None]
                code = tl.load(rows + shown + chunk * DIM, mask=inside, other=0.0)
                some = columns + chunk * DIM
                word = tl.load(some + tl.arange(0, FIRST)[None, :] * (CHUNKS * DIM))
                score_first = tl.dot(code, word, score_first, out_dtype=number)
                if SECOND > 0:
                    word_second = tl.load(some + (FIRST + tl.arange(0, SECOND))[None, :] * (CHUNKS * DIM))
                    score_second = tl.dot(code, word_second, score_second, out_dtype=number)
                if THIRD > 0:
                    word_third = tl.load(some + (FIRST + SECOND + tl.arange(0, THIRD))[None, :] * (CHUNKS * DIM))
                    score_third = tl.dot(code, word_third, score_third, out_dtype=number)
        else:
            if TMA:
                code = codes.load([block * PICTURES, region * DIM])
            elif RAGGED:  # a picture that has no more regions shows its last one again
                shown = (offset + tl.minimum(region, last)) * dim
                code = tl.load(rows + shown[:, None] + part[None, :], mask=(part < dim)[None, :], other=0.0)
            elif PADDED:
                code = tl.load(rows + region * dim, mask=(part < dim)[None, :], other=0.0)
            else:
                code = tl.load(rows + region * DIM)
            score_first = tl.dot(code, first, out_dtype=number)
            if SECOND > 0:
                score_second = tl.dot(code, second, out_dtype=number)
            if THIRD > 0:
                score_third = tl.dot(code, third, out_dtype=number)
        best_first = tl.maximum(best_first, score_first)
        if SECOND > 0:
            best_second = tl.maximum(best_second, score_second)
        if THIRD > 0:
            best_third = tl.maximum(best_third, score_third)

    total = tl.zeros((PICTURES, QUERIES), tl.float32)  # the words of each query summed
    total = add_words(total, best_first, owner, word_scale, FIRST, QUERIES, INTEGER, ADDEND)
    if SECOND > 0:
        total = add_words(total, best_second, owner + FIRST, word_scale + FIRST, SECOND, QUERIES, INTEGER, ADDEND)
    if THIRD > 0:
        after = FIRST + SECOND
        total = add_words(total, best_third, owner + after, word_scale + after, THIRD, QUERIES, INTEGER, ADDEND)
    query = tl.arange(0, QUERIES)
    real = query < queries
    if INTEGER:
        total *= tl.load(scale + place)[:, None]
    if BOUND:
        total += tl.load(reach + place)[:, None] * tl.load(word_error + query, mask=real, other=0.0)[None, :]
        total += tl.load(error + place)[:, None] * tl.load(word_reach + query, mask=real, other=0.0)[None, :]
    total = tl.where(((count > 0) & there)[:, None], total, float("-inf"))
    tl.store(
        scores + query[None, :].to(tl.int64) * pictures + picture[:, None], total, mask=there[:, None] & real[None, :]
    )
    tl.store(peaks + query * blocks + block, tl.max(total, axis=0), mask=real)


@triton.jit
def add_words(
    total,
    best,
    owner,
    word_scale,
    WORDS: tl.constexpr,
    QUERIES: tl.constexpr,
    INTEGER: tl.constexpr,
    ADDEND: tl.constexpr,
):
    """Add the best scores of a block of words to their queries."""
    word = tl.arange(0, WORDS)
    member = (tl.load(owner + word)[:, None] == tl.arange(0, QUERIES)[None, :]).to(ADDEND)
    value = best.to(tl.float32)
    if INTEGER:
        value *= tl.load(word_scale + word)[None, :]
    high = _upper_half(value)
    middle = _upper_half(value - high)
    low = value - high - middle
    total = tl.dot(low.to(ADDEND), member, total)
    total = tl.dot(middle.to(ADDEND), member, total)
    return tl.dot(high.to(ADDEND), member, total)


@triton.jit
def _upper_half(value):
    """The first 16 bits of a float32, a bfloat16: cut, not rounded, which costs one instruction."""
    return (value.to(tl.uint32, bitcast=True) & 0xFFFF0000).to(tl.float32, bitcast=True)


@triton.jit
def chosen_kernel(
    codes,  # rows [row, dim]
    starts,  # [picture + 1], if RAGGED
    words,  # [row, pitch]
    table,  # [5, query]: see `words_kernel`
    chosen,  # [query, choice]: pictures; -1: none
    counts,  # [query]: how many are chosen, if COUNTED
    found,  # [query, choice]: scores, or if KEYS keys of scores and pictures
    choices,
    regions,
    dim,
    pitch,
    queries,
    DIM: tl.constexpr,
    WORDS: tl.constexpr,
    PICTURES: tl.constexpr,
    RAGGED: tl.constexpr,
    COUNTED: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """MaxSim of each query with pictures chosen for it; where a list has ended there is next to nothing to do."""
    query = tl.program_id(1)
    choice = tl.program_id(0) * PICTURES + tl.arange(0, PICTURES)
    there = choice < choices
    target = found + query.to(tl.int64) * choices + choice
    count = choices
    if COUNTED:
        count = tl.minimum(tl.load(counts + query), choices)
    total = tl.full((PICTURES,), float("-inf"), tl.float32)
    picture = tl.full((PICTURES,), -1, tl.int64)
    if tl.program_id(0) * PICTURES < count:
        picture = tl.load(chosen + query.to(tl.int64) * choices + choice, mask=choice < count, other=-1).to(tl.int64)
        place = tl.maximum(picture, 0)
        part = tl.arange(0, DIM)
        word = tl.arange(0, WORDS)
        length = tl.load(table + queries + query)
        row = tl.load(table + 2 * queries + query)
        real = (word < length)[None, :] & (part < dim)[:, None]
        query_words = tl.load(words + (row + word)[None, :] * pitch + part[:, None], mask=real, other=0.0)
        best = tl.full((PICTURES, WORDS), float("-inf"), tl.float32)
        if RAGGED:
            start = tl.load(starts + place)
            shown = (tl.load(starts + place + 1) - start).to(tl.int32)
            steps = tl.max(shown, axis=0)
        else:
            start = place * regions
            shown = tl.full((PICTURES,), regions, tl.int32)
            steps = regions
        rows = codes + start[:, None] * dim + part[None, :]
        for region in tl.range(0, steps, num_stages=STAGES):
            last = tl.maximum(tl.minimum(region, shown - 1), 0)  # a picture that has no more shows its last one again
            inside = (part < dim)[None, :] & (shown > 0)[:, None]
            code = tl.load(rows + (last * dim)[:, None], mask=inside, other=0.0)
            best = tl.maximum(best, tl.dot(code, query_words, out_dtype=tl.float32))
        total = tl.sum(tl.where((word < length)[None, :], best, 0.0), axis=1)
        total = tl.where((shown > 0) & (picture >= 0), total, float("-inf"))
    if KEYS:
        tl.store(target, key_of(total, tl.where(picture >= 0, picture, 4294967295)), mask=there)
    else:
        tl.store(target, total, mask=there)


@triton.jit
def key_of(score, index):
    """One whole number in the order of the scores, then of the indices backwards: what `exact.ranked` sorts by."""
    bits = tl.where(score == 0, 0.0, score).to(tl.int32, bitcast=True)  # there is only one zero
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (rising.to(tl.int64) << 32) | (4294967295 - index)
