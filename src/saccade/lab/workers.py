"""Worker processes that do jobs one after another: each imports PyTorch once, and a fault stops one job only.

The parent hands out the jobs over pipes: it knows who works on what, notices a worker that died (killed for its memory,
say) and puts another in its place. Workers end with their parent, even one that was killed.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from saccade.core.errors import SaccadeError
from saccade.core.interrupt import end_with_parent, without_interrupts

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

J = TypeVar("J")
TICK = 0.25  # seconds between two checks of the clock


@dataclass(frozen=True)
class Ended(Generic[J]):
    """A job that has ended, well or not."""

    job: J
    seconds: float
    failure: str | None = None


@dataclass
class _Worker(Generic[J]):
    process: SpawnProcess
    pipe: Connection
    job: J | None = None
    since: float = 0.0


def run_jobs(
    todo: Sequence[J],
    run_job: Callable[[J], None],
    at_once: int,
    threads: int = 1,
    until: float = float("inf"),
    started: Callable[[J], None] = lambda job: None,
    ended: Callable[[Ended[J]], Sequence[J] | None] = lambda end: None,
    tick: Callable[[], None] = lambda: None,
) -> list[J]:
    """Do the jobs, so many at once, until `until` (of `time.monotonic`); what is not done by then comes back.

    `run_job` is called in a process of its own (so it must be a function that can be pickled), which has `threads`
    threads, and ended when the time is up. What `ended` returns are further jobs, done after the others. Whatever
    `started`, `ended` or `tick` raise here ends all workers.
    """
    left = list(todo)
    workers: list[_Worker[J]] = []
    try:
        while True:
            while left and time.monotonic() < until and len(workers) < at_once:
                workers.append(_start(run_job, threads))
            for worker in workers:
                if worker.job is None and left and time.monotonic() < until:
                    worker.job, worker.since = left.pop(0), time.monotonic()
                    started(worker.job)
                    worker.pipe.send(worker.job)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy or time.monotonic() >= until:
                return [*(worker.job for worker in busy if worker.job is not None), *left]
            ready = wait([worker.pipe for worker in busy], timeout=TICK)
            tick()
            for worker in busy:
                if worker.pipe in ready:
                    assert worker.job is not None
                    failure, alive = _answer(worker)
                    job, worker.job = worker.job, None
                    if not alive:
                        workers.remove(worker)
                    left += ended(Ended(job, time.monotonic() - worker.since, failure)) or ()
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def _start(run_job: Callable[[J], None], threads: int) -> _Worker[J]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, run_job, threads), daemon=True)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the child first imports NumPy and PyTorch
    try:
        with without_interrupts():
            process.start()
    finally:
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)
    theirs.close()
    return _Worker(process, mine)


def _answer(worker: _Worker[J]) -> tuple[str | None, bool]:
    """Why the job failed (None: it did not), and whether the worker can take another."""
    try:
        failure: str | None = worker.pipe.recv()
        return failure, True
    except (EOFError, OSError):
        worker.process.join()
        return f"its process ended before its time (exit code {worker.process.exitcode})", False


def _serve(pipe: Connection, run_job: Callable[[J], None], threads: int) -> None:
    """The worker: one job after another, until the parent has no more or is no more."""
    import torch

    torch.set_num_threads(threads)
    end_with_parent()
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            run_job(job)
            pipe.send(None)
        except SaccadeError as error:
            pipe.send(str(error))
        except Exception as error:  # one job's fault, a full GPU for one, must not take the others with it
            first = (str(error).strip().splitlines() or [""])[0]
            pipe.send(f"{type(error).__name__}: {first}")
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
