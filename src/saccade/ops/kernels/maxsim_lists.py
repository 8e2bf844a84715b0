"""Lists of pictures on a GPU: which ones are good enough, their exact scores, and their order.

A list has a fixed capacity and a count beside it, so that nothing is asked of the host between one kernel and the next.
Its order does not matter: a picture with its score is one whole number of 64 bits, larger for a higher score and then
for a smaller index, and sorting those gives one order whatever the list's.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def list_kernel(
    scores,  # [query, item]
    peaks,  # [query, block]: the best score of each block
    least,  # [query], `pitch` apart: what is good enough
    counts,  # [query], zeros: how many are; more than `capacity` if they did not fit
    listed,  # [query, capacity]: their indices, or if KEYS their keys
    items,
    blocks,
    first,  # index of the first item
    capacity,
    pitch,
    BLOCK: tl.constexpr,
    ITEMS: tl.constexpr,  # of a program
    KEYS: tl.constexpr,
):
    """List the items that are good enough, looking only into blocks whose best one is."""
    query = tl.program_id(1).to(tl.int64)
    need = tl.load(least + query * pitch)
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    there = item < items
    peak = tl.load(peaks + query * blocks + item // BLOCK, mask=there, other=float("-inf"))
    there = there & (peak >= need)
    if tl.max(there.to(tl.int32), axis=0) > 0:
        score = tl.load(scores + query * items + item, mask=there, other=float("-inf"))
        good = there & (score >= need)
        number = good.to(tl.int32)
        place = tl.atomic_add(counts + query, tl.sum(number, axis=0)) + tl.cumsum(number, axis=0) - 1
        index = item.to(tl.int64) + first
        if KEYS:
            index = key_of(score, index)
        tl.store(listed + query * capacity + place, index, mask=good & (place < capacity))


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
        asked = (word < length)[None, :] & (part < dim)[:, None]
        asking = tl.load(words + (row + word)[None, :] * pitch + part[:, None], mask=asked, other=0.0)
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
            best = tl.maximum(best, tl.dot(code, asking, out_dtype=tl.float32))
        total = tl.sum(tl.where((word < length)[None, :], best, 0.0), axis=1)
        total = tl.where((shown > 0) & (picture >= 0), total, float("-inf"))
    if KEYS:
        tl.store(target, key_of(total, tl.where(picture >= 0, picture, 4294967295)), mask=there)
    else:
        tl.store(target, total, mask=there)


@triton.jit
def open_kernel(keys, scores, indices, count, ITEMS: tl.constexpr):
    """What is in keys."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    key = tl.load(keys + item, mask=item < count, other=0)
    rising = (key >> 32).to(tl.int32)
    bits = rising ^ ((rising >> 31) & 0x7FFFFFFF)
    tl.store(scores + item, bits.to(tl.float32, bitcast=True), mask=item < count)
    tl.store(indices + item, 4294967295 - (key & 4294967295), mask=item < count)


@triton.jit
def key_of(score, index):
    """One whole number in the order of the scores, then of the indices backwards: what `top_k.ranked` sorts by."""
    bits = tl.where(score == 0, 0.0, score).to(tl.int32, bitcast=True)  # there is only one zero
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (rising.to(tl.int64) << 32) | (4294967295 - index)
