"""MaxSim over wide codes: too many dimensions for all words to stay in shared memory, so both come chunk by chunk."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from saccade.ops.kernels.maxsim import finish

MOST_WIDE = 2048  # dimensions, of codes that are chosen
CHUNK = 64


@triton.jit
def maxsim_wide_kernel(
    codes,  # rows [row, dim]
    starts,
    scale,
    words,  # [word, CHUNKS · DIM]
    word_scale,
    owner,
    reach,
    error,
    word_error,
    word_reach,
    scores,
    peaks,
    pictures,
    dim,
    blocks,
    queries,
    CHUNKS: tl.constexpr,
    DIM: tl.constexpr,  # of a chunk
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    THIRD: tl.constexpr,
    PICTURES: tl.constexpr,
    QUERIES: tl.constexpr,
    INTEGER: tl.constexpr,
    BOUND: tl.constexpr,
    STAGES: tl.constexpr,
    ADDEND: tl.constexpr,
):
    """As `maxsim_kernel`, whose arguments it takes; scores are summed over a region's chunks before they compete."""
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
    best_second = tl.full((PICTURES, max(SECOND, 16)), least, number)
    best_third = tl.full((PICTURES, max(THIRD, 16)), least, number)
    start = tl.load(starts + place)
    count = (tl.load(starts + place + 1) - start).to(tl.int32)
    rows = codes + start[:, None] * dim + part[None, :]
    asking = words + part[:, None]
    for region in tl.range(0, tl.max(count, axis=0), num_stages=1):
        shown = (tl.maximum(tl.minimum(region, count - 1), 0) * dim)[:, None]
        score_first = tl.zeros((PICTURES, FIRST), number)
        score_second = tl.zeros((PICTURES, max(SECOND, 16)), number)
        score_third = tl.zeros((PICTURES, max(THIRD, 16)), number)
        for chunk in tl.range(0, CHUNKS, num_stages=STAGES):
            inside = (chunk * DIM + part < dim)[None, :] & (count > 0)[:, None]
            code = tl.load(rows + shown + chunk * DIM, mask=inside, other=0.0)
            some = asking + chunk * DIM
            word = tl.load(some + tl.arange(0, FIRST)[None, :] * (CHUNKS * DIM))
            score_first = tl.dot(code, word, score_first, out_dtype=number)
            if SECOND > 0:
                word = tl.load(some + (FIRST + tl.arange(0, SECOND))[None, :] * (CHUNKS * DIM))
                score_second = tl.dot(code, word, score_second, out_dtype=number)
            if THIRD > 0:
                word = tl.load(some + (FIRST + SECOND + tl.arange(0, THIRD))[None, :] * (CHUNKS * DIM))
                score_third = tl.dot(code, word, score_third, out_dtype=number)
        best_first = tl.maximum(best_first, score_first)
        if SECOND > 0:
            best_second = tl.maximum(best_second, score_second)
        if THIRD > 0:
            best_third = tl.maximum(best_third, score_third)

    finish(
        best_first, best_second, best_third, owner, word_scale, block, place, there, count, scale, reach, error,
        word_error, word_reach, scores, peaks, pictures, blocks, queries, FIRST, SECOND, THIRD, PICTURES, QUERIES,
        INTEGER, BOUND, ADDEND,
    )  # fmt: skip
