"""One thread for each model, which answers what has gathered in its queue together.

While it computes, requests gather; so a lone client never waits, and many clients share a batch. Only when the last
batch held several does the thread wait a few milliseconds for more.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from saccade.core.errors import SaccadeError

Q = TypeVar("Q")
A = TypeVar("A")


class Busy(Exception):
    """The queue is full, or the service is stopping."""


@dataclass(eq=False)
class _Job:
    work: Any  # a query of the batch, or a function
    alone: bool
    future: Future[Any] = field(default_factory=Future)


class Worker(Generic[Q, A]):
    """Answers queries in batches (`ask`), and calls functions one by one (`call`), all in one thread."""

    def __init__(
        self,
        name: str,
        answer: Callable[[Sequence[Q]], Sequence[A]] | None = None,
        *,
        batch: int = 32,
        wait: float = 0.004,
        waiting: int = 256,
        seen: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer, self._batch, self._wait, self.seen = answer, batch, wait, seen
        self._jobs: queue.Queue[_Job | None] = queue.Queue(waiting)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"saccade-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def ask(self, query: Q) -> Future[A]:
        """Raises: Busy if too many wait."""
        return self._put(_Job(query, alone=False))

    def call(self, work: Callable[[], Any]) -> Future[Any]:
        """Raises: Busy if too many wait."""
        return self._put(_Job(work, alone=True))

    def close(self, seconds: float = 10.0) -> None:
        """Finish what waits, then stop; no more is taken."""
        if not self._stopping:
            self._stopping = True
            self._jobs.put(None)
        self._thread.join(seconds)

    def _put(self, job: _Job) -> Future[Any]:
        if self._stopping:
            raise Busy("the service is stopping")
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise Busy("too many requests wait for this model: try again in a moment") from None
        return job.future

    def _run(self) -> None:
        last = 0
        while (first := self._jobs.get()) is not None:
            jobs, ended = [first], False
            until = time.monotonic() + (self._wait if last > 1 else 0.0)
            while len(jobs) < self._batch:
                try:
                    left = until - time.monotonic()
                    job = self._jobs.get(timeout=left) if left > 0 else self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    ended = True
                    break
                jobs.append(job)
            wanted = [job for job in jobs if job.future.set_running_or_notify_cancel()]  # clients may have gone
            queries = [job for job in wanted if not job.alone]
            last = len(queries)
            if queries:
                self.seen(len(queries))
                self._together(queries)
            for job in wanted:
                if job.alone:
                    _finish(job, job.work)
            if ended:
                return

    def _together(self, jobs: list[_Job]) -> None:
        """One bad query must not spoil the others': if a batch is refused, each is asked for itself."""
        answer = self._answer
        assert answer is not None
        try:
            answers = answer([job.work for job in jobs])
        except SaccadeError as error:
            if len(jobs) == 1:
                jobs[0].future.set_exception(error)
                return
            for job in jobs:
                _finish(job, lambda job=job: answer([job.work])[0])  # type: ignore[misc]
        except BaseException as error:
            for job in jobs:
                job.future.set_exception(error)
        else:
            for job, one in zip(jobs, answers, strict=True):
                job.future.set_result(one)


def _finish(job: _Job, work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # whatever it is, it belongs to whoever asked
        job.future.set_exception(error)
    else:
        job.future.set_result(result)
