"""Worker processes that carry out runs one after another: each imports PyTorch once, and a fault stops one run only.

The parent hands out the runs over pipes: it knows who works on what, notices a worker that died (killed for its memory,
say) and puts another in its place. Workers end with their parent, even one that was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.claims.measure import FAILURE, carry_out
from saccade.claims.plan import Run
from saccade.core.errors import SaccadeError
from saccade.core.files import write_json

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


@dataclass(frozen=True)
class Ended:
    """A run that has ended, well or not."""

    run: Run
    seconds: float
    failure: str | None = None


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    run: Run | None = None
    since: float = 0.0


CarryOut = Callable[[Run, Path, bool], None]


def carry_out_all(
    todo: Sequence[Run],
    runs: Path,
    jobs: int,
    threads: int = 1,
    lean: bool = False,
    until: float = float("inf"),
    started: Callable[[Run], None] = lambda run: None,
    ended: Callable[[Ended], None] = lambda end: None,
    work: CarryOut | None = None,
) -> list[Run]:
    """Carry out the runs, `jobs` at once; what had not begun by the time `until` (of `time.monotonic`) comes back."""
    left = list(todo)
    workers: list[_Worker] = []
    try:
        while True:
            while left and time.monotonic() < until and len(workers) < jobs:
                workers.append(_start(runs, threads, lean, work))
            for worker in workers:
                if worker.run is None and left and time.monotonic() < until:
                    worker.run, worker.since = left.pop(0), time.monotonic()
                    started(worker.run)
                    worker.pipe.send(worker.run)
            busy = [worker for worker in workers if worker.run is not None]
            if not busy:
                return left
            ready = wait([worker.pipe for worker in busy], timeout=5)
            for worker in busy:
                if worker.pipe in ready:
                    assert worker.run is not None
                    failure, alive = _answer(worker)
                    if failure is not None:
                        write_json(runs / worker.run.name / FAILURE, failure)
                    ended(Ended(worker.run, time.monotonic() - worker.since, failure))
                    worker.run = None
                    if not alive:
                        workers.remove(worker)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def _start(runs: Path, threads: int, lean: bool, work: CarryOut | None) -> _Worker:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, runs, threads, lean, work), daemon=True)
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the child first imports NumPy and PyTorch
    try:
        process.start()
    finally:
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)
    theirs.close()
    return _Worker(process, mine)


def _answer(worker: _Worker) -> tuple[str | None, bool]:
    """Why the run failed (None: it did not), and whether the worker can take another."""
    try:
        failure: str | None = worker.pipe.recv()
        return failure, True
    except (EOFError, OSError):
        worker.process.join()
        return f"its process ended before its time (exit code {worker.process.exitcode})", False


def _serve(pipe: Connection, runs: Path, threads: int, lean: bool, work: CarryOut | None) -> None:
    """The worker: one run after another, until the parent has no more or is no more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    carry = work or _carry_out_here(threads)
    while True:
        try:
            run = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            carry(run, runs, lean)
            pipe.send(None)
        except KeyboardInterrupt:
            return
        except SaccadeError as error:
            pipe.send(str(error))
        except Exception as error:  # one run's fault, a full GPU for one, must not take the others with it
            first = (str(error).strip().splitlines() or [""])[0]
            pipe.send(f"{type(error).__name__}: {first}")
            _free_memory()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nothing is lost: all files are whole or absent


def _carry_out_here(threads: int) -> CarryOut:
    from functools import lru_cache

    import torch

    from saccade.tasks import SplitForModels

    torch.set_num_threads(threads)
    splits = lru_cache(maxsize=8)(SplitForModels)  # a worker meets the same few again and again
    return lambda run, runs, lean: carry_out(run, runs, lean, splits)


def _free_memory() -> None:
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
