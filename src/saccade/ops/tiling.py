"""How work is cut into pieces, and how the cores of a CPU share them.

Items of several lengths are sorted and cut into groups of which little is padding. PyTorch splits each operation among
the cores and waits for the slowest part of each. Where the operations are small (a tile that fits a core's cache) it is
faster to give every core its own tiles: they never wait for each other, and what a core has in its cache stays there.
Python's threads are enough, for operations run without its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

T = TypeVar("T")
Cut = tuple[slice, int]  # some items in the order of length, and the length of the longest


def longest_first(mask: Bool[Tensor, "item part"]) -> tuple[Int[Tensor, " item"], list[int]]:
    """Their order by length, and the lengths in that order; a length reaches to the last real part."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    reach = mask * places
    lengths, order = (reach.amax(dim=1) if mask.shape[1] else reach.sum(dim=1)).sort(descending=True, stable=True)
    return order, lengths.tolist()


def cut(
    lengths: Sequence[int],
    most: Callable[[int], int],
    least: Callable[[int], int] | None = None,
    alike: float = 0.0,
    multiple: int = 1,
) -> Iterator[Cut]:
    """Groups of items that come longest first; those whose longest has length n have at most `most(n)` items.

    A group ends where items are shorter than a share `alike` of its longest; with more than `least(n)` items it ends
    wherever shorter ones begin. If not ended so, it has a `multiple` of items where it can.
    """
    start = 0
    while start < len(lengths):
        longest, stop, early = max(1, lengths[start]), start + 1, False
        limit = start + max(1, most(longest))
        enough = start + (least(longest) if least is not None else len(lengths))
        while stop < min(limit, len(lengths)) and lengths[stop] >= alike * longest:
            if early := stop > enough and lengths[stop] < lengths[stop - 1]:
                break
            stop += 1
        if stop < len(lengths) and not early and stop - start > multiple:
            stop -= (stop - start) % multiple
        yield slice(start, stop), longest
        start = stop


def neighbours(sizes: Sequence[int], limit: int) -> Iterator[tuple[slice, slice]]:
    """Neighbouring items of at most `limit` rows together, though at least one: the items and their rows."""
    begin = row = rows = 0
    for item, size in enumerate(sizes):
        if rows and rows + size > limit:
            yield slice(begin, item), slice(row, row + rows)
            begin, row, rows = item, row + rows, 0
        rows += size
    if begin < len(sizes):
        yield slice(begin, len(sizes)), slice(row, row + rows)


def slices(count: int, parts: int) -> list[slice]:
    """So many neighbouring parts of about one size, or fewer: none is empty."""
    parts = min(count, max(1, parts))
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def on_every_core(jobs: Iterable[Callable[[], T]]) -> list[T]:
    """What the jobs give, as many at a time as PyTorch has threads, each on one of them and without gradients."""
    jobs, cores = list(jobs), torch.get_num_threads()
    if cores == 1 or len(jobs) < 2:
        with torch.no_grad():
            return [job() for job in jobs]
    try:
        with ThreadPoolExecutor(min(cores, len(jobs)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(_alone, jobs, [copy_context() for _ in jobs]))
    finally:
        torch.set_num_threads(cores)  # which the threads that come after these would else have from them


def _alone(job: Callable[[], T], context: Context) -> T:
    """In the caller's context, so that a backend forced there is forced here; a context has one thread at a time."""
    with torch.no_grad():  # a new thread wants gradients until told otherwise
        return context.run(job)
