"""The best pictures of a tile on a GPU, from the first kernel to the last without asking it anything in between.

The lists that pass from kernel to kernel have a fixed capacity. Only at the end, when the answer is waited for anyway,
the host reads how long they were. One that overflowed is no answer: None, and the caller takes the slower way.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.ops.maxsim import Queries
from saccade.ops.maxsim_launch import launch_chosen
from saccade.ops.maxsim_words import Asked, power_of_two
from saccade.ops.region_codes import RegionCodes
from saccade.ops.top_k import Ranking

MOST_BEST = 1024  # k, of lists
_CAPACITY = 32_768  # pictures of a query that are scored again from the exact codes
_GUESSES = 4  # times k pictures are scored exactly to learn what is good enough
_ITEMS = 2048  # of a program that lists
_SLICE = 4096  # keys that are sorted out at a time
_NOTHING = -2139095041 << 32  # the key of no picture: less than all others


def best_listed(
    scores: Float[Tensor, "query picture"], peaks: Float[Tensor, "query block"], block: int, k: int, first: int
) -> Ranking | None:
    """The best k where blocks are many: what reaches the best picture of the k-th best block is sorted."""
    if peaks.shape[1] <= 2 * k or k > MOST_BEST:
        return None
    least = peaks.topk(k, dim=1, sorted=False).values.amin(dim=1)
    capacity = power_of_two(k * block)  # more are listed only where many items tie
    counts = torch.zeros(len(scores), dtype=torch.int32, device=scores.device)
    keys = torch.full((len(scores), capacity), _NOTHING, device=scores.device)
    _list(scores, peaks, least, counts, keys, first, block, keys=True)
    found = opened(best_keys(keys, k))
    return found if max(counts.tolist()) <= capacity else None


def certain_listed(
    queries: Queries,
    exact: RegionCodes,
    most: Float[Tensor, "query picture"],
    peaks: Float[Tensor, "query block"],
    block: int,
    k: int,
    first: int,
    least: Float[Tensor, " query"] | None,
    asked: Asked,
) -> Ranking | None:
    """The best k by their exact scores of pictures of which `most` is the most that they could score.

    `least`: the k-th best exact score known so far. Without it, the exact scores of pictures that could score best tell
    a first one; which pictures these are decides how much is to be done, never the answer.
    """
    if k > MOST_BEST:
        return None
    pictures = most.shape[1]
    counts = torch.zeros(2, len(queries), dtype=torch.int32, device=most.device)
    if least is None:
        promising = peaks.topk(min(_GUESSES * k, peaks.shape[1]), dim=1, sorted=False).values.amin(dim=1)
        room = min(power_of_two(2 * _GUESSES * k), max(k, pictures))
        guess = torch.empty(len(queries), room, dtype=torch.int64, device=most.device)
        _list(most, peaks, promising, counts[0], guess, first, block)
        scores = launch_chosen(queries, exact, guess, counts[0], asked=asked)
        least = scores.topk(k, dim=1, sorted=False).values.amin(dim=1)
    capacity = min(_CAPACITY, pictures if pictures <= _SLICE else -(-pictures // _SLICE) * _SLICE)
    listed = torch.empty(len(queries), capacity, dtype=torch.int64, device=most.device)
    _list(most, peaks, least, counts[1], listed, first, block)
    keys = launch_chosen(queries, exact, listed, counts[1], keys=True, asked=asked)
    found = opened(best_keys(keys, min(k, pictures)))
    return found if max(counts[1].tolist()) <= capacity else None


def best_keys(keys: Int[Tensor, "query item"], k: int) -> Int[Tensor, "query rank"]:
    """The k largest in order. Long rows are cut first: a GPU is filled by many short ones."""
    queries, items = keys.shape
    if items > 2 * _SLICE and items % _SLICE == 0 and 4 * k <= _SLICE:
        keys = keys.view(-1, _SLICE).topk(k, dim=1, sorted=False).values.view(queries, -1)
    return keys.topk(min(k, items), dim=1).values


def opened(keys: Int[Tensor, "query rank"]) -> Ranking:
    from saccade.ops.kernels.maxsim_lists import open_kernel

    scores = torch.empty(keys.shape, device=keys.device)
    indices = torch.empty_like(keys)
    open_kernel[(-(-keys.numel() // _ITEMS),)](keys, scores, indices, keys.numel(), ITEMS=_ITEMS, num_warps=4)
    return Ranking(scores, indices)


def _list(
    scores: Tensor,
    peaks: Tensor,
    least: Tensor,
    counts: Tensor,
    listed: Tensor,
    first: int,
    block: int,
    keys: bool = False,
) -> None:
    from saccade.ops.kernels.maxsim_lists import list_kernel

    list_kernel[(-(-scores.shape[1] // _ITEMS), len(scores))](
        scores,
        peaks,
        least,
        counts,
        listed,
        scores.shape[1],
        peaks.shape[1],
        first,
        listed.shape[1],
        least.stride(0),
        BLOCK=block,
        ITEMS=_ITEMS,
        KEYS=keys,
        num_warps=4,
    )
