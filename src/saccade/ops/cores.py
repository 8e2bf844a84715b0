"""Independent pieces of work on all cores of a CPU, one piece a core.

PyTorch splits each operation between the cores and waits for the slowest part of each. Where the operations are small
(a tile that fits a core's cache) it is faster to give every core its own tiles: they never wait for each other, and
what a core has in its cache stays there. Python's threads are enough, for operations run without its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import TypeVar

import torch

T = TypeVar("T")


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


def ranges(count: int, parts: int) -> list[range]:
    """So many neighbouring parts of about one size, or fewer: none is empty."""
    parts = max(1, min(count, parts))
    return [range(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def _alone(job: Callable[[], T], context: Context) -> T:
    """In the caller's context, so that a backend forced there is forced here; a context has one thread at a time."""
    with torch.no_grad():  # a new thread wants gradients until told otherwise
        return context.run(job)
