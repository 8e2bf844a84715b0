"""Lists of pictures on a GPU: which ones are good enough, their exact scores, and their order.

From the first kernel to the last nothing waits for the host. A list has a fixed capacity and a count beside it. Its
order does not matter: a picture with its score is one whole number of 64 bits, larger for a higher score and then for a
smaller index, and sorting those gives one order whatever the list's. Only at the end, when the answer is waited for
anyway, the host reads how long the lists were. One that overflowed is no answer: None, and the caller takes the slower
way.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from saccade.search.exact import Ranking
from saccade.search.maxsim import QueryWords
from saccade.search.region_codes import RegionCodes
from saccade.search.triton import MAX_LISTED, power_of_two
from saccade.search.triton.launch import PreparedWords, TileScores, launch_chosen
from saccade.search.triton.maxsim import key_of

_CAPACITY = 32_768  # pictures of a query that are scored again from the exact codes
_GUESSES = 4  # times k pictures are scored exactly to learn what is good enough
_ITEMS = 2048  # of a program that lists
_SLICE = 4096  # keys that are sorted out at a time
_NOTHING = -2139095041 << 32  # the key of no picture: less than all others


def best_listed(tile: TileScores, k: int, first: int) -> Ranking | None:
    """The best k where blocks are many: what reaches the best picture of the k-th best block is sorted."""
    if tile.peaks.shape[1] <= 2 * k or k > MAX_LISTED:
        return None
    least = tile.peaks.topk(k, dim=1, sorted=False).values.amin(dim=1)
    capacity = power_of_two(k * tile.block)  # more are listed only where many items tie
    counts = torch.zeros(len(tile.scores), dtype=torch.int32, device=least.device)
    keys = torch.full((len(tile.scores), capacity), _NOTHING, device=least.device)
    _list(tile, least, counts, keys, first, keys=True)
    found = opened(best_keys(keys, k))
    return found if max(counts.tolist()) <= capacity else None


def certain_listed(
    queries: QueryWords,
    exact: RegionCodes,
    most: TileScores,
    k: int,
    first: int,
    least: Float[Tensor, " query"] | None,
    words: PreparedWords | None,
) -> Ranking | None:
    """The best k by their exact scores of pictures of which `most` is the most that they could score.

    `least`: the k-th best exact score known so far. Without it, the exact scores of pictures that could score best tell
    a first one; which pictures these are decides how much is to be done, never the answer.
    """
    if k > MAX_LISTED:
        return None
    pictures, device = most.scores.shape[1], most.scores.device
    counts = torch.zeros(2, len(queries), dtype=torch.int32, device=device)
    if least is None:
        promising = most.peaks.topk(min(_GUESSES * k, most.peaks.shape[1]), dim=1, sorted=False).values.amin(dim=1)
        room = min(power_of_two(2 * _GUESSES * k), max(k, pictures))
        guess = torch.empty(len(queries), room, dtype=torch.int64, device=device)
        _list(most, promising, counts[0], guess, first)
        scores = launch_chosen(queries, exact, guess, counts[0], words=words)
        least = scores.topk(k, dim=1, sorted=False).values.amin(dim=1)
    capacity = min(_CAPACITY, pictures if pictures <= _SLICE else -(-pictures // _SLICE) * _SLICE)
    listed = torch.empty(len(queries), capacity, dtype=torch.int64, device=device)
    _list(most, least, counts[1], listed, first)
    keys = launch_chosen(queries, exact, listed, counts[1], keys=True, words=words)
    found = opened(best_keys(keys, min(k, pictures)))
    return found if max(counts[1].tolist()) <= capacity else None


def best_keys(keys: Int[Tensor, "query item"], k: int) -> Int[Tensor, "query rank"]:
    """The k largest in order. Long rows are cut first: a GPU is filled by many short ones."""
    queries, items = keys.shape
    if items > 2 * _SLICE and items % _SLICE == 0 and 4 * k <= _SLICE:
        keys = keys.view(-1, _SLICE).topk(k, dim=1, sorted=False).values.view(queries, -1)
    return keys.topk(min(k, items), dim=1).values


def opened(keys: Int[Tensor, "query rank"]) -> Ranking:
    scores = torch.empty(keys.shape, device=keys.device)
    indices = torch.empty_like(keys)
    open_kernel[(-(-keys.numel() // _ITEMS),)](keys, scores, indices, keys.numel(), ITEMS=_ITEMS, num_warps=4)
    return Ranking(scores, indices)


def _list(tile: TileScores, least: Tensor, counts: Tensor, listed: Tensor, first: int, keys: bool = False) -> None:
    scores, peaks, block = tile
    list_kernel[(-(-scores.shape[1] // _ITEMS), len(scores))](
        *(scores, peaks, least, counts, listed),
        *(scores.shape[1], peaks.shape[1], first, listed.shape[1], least.stride(0)),
        BLOCK=block,
        ITEMS=_ITEMS,
        KEYS=keys,
        num_warps=4,
    )


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
def open_kernel(keys, scores, indices, count, ITEMS: tl.constexpr):
    """What is in keys."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    key = tl.load(keys + item, mask=item < count, other=0)
    rising = (key >> 32).to(tl.int32)
    bits = rising ^ ((rising >> 31) & 0x7FFFFFFF)
    tl.store(scores + item, bits.to(tl.float32, bitcast=True), mask=item < count)
    tl.store(indices + item, 4294967295 - (key & 4294967295), mask=item < count)
