"""Work done ahead by a few threads, or behind by one: in order, with a bound on the results that wait."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

MIN_OPENERS, MAX_OPENERS = 2, 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, most: int
) -> Generator[Result, None, None]:
    """`map(work, items)` with `workers` threads, at most `most` results ahead of whoever takes them.

    Close the iterator when leaving early: what has not begun is then dropped. Decoding pictures lets go of Python's
    lock, so threads are enough, and nothing is copied between processes. Without workers, nothing is done ahead.
    """
    if not workers:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="ahead")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def behind(work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """`map(work, items)` by one thread, which works on an item while the caller's own thread makes the next.

    After a failure no other item is begun; what was begun is finished, whatever happens to the caller.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="behind") as pool:
        begun: Future[Result] | None = None
        for item in items:
            if begun is not None:
                yield begun.result()
            begun = pool.submit(work, item)
        if begun is not None:
            yield begun.result()


def cores() -> int:
    """Those this process may use, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def openers() -> int:
    """How many threads should open pictures: one for each core, within reason."""
    return min(max(cores(), MIN_OPENERS), MAX_OPENERS)
