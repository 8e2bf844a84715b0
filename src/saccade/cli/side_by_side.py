"""Training several models at once, each in a process of its own with its share of the cores.

Small recurrent models keep one core busy and gain next to nothing from a second one, so two trainings side by side take
hardly longer than one.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from saccade.training.run import RunConfig


@dataclass(frozen=True)
class Job:
    """What to train, into which folder, under which name, and how many steps it will take."""

    run: RunConfig
    folder: Path
    label: str
    steps: int


def train_side_by_side(jobs: Sequence[Job], console: Console) -> None:
    """Train every job into its run folder; what a job refuses is raised here, and the others are ended."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bars = [progress.add_task(job.label, total=job.steps) for job in jobs]

        def show() -> None:
            for bar, job in zip(bars, jobs, strict=True):
                progress.update(bar, completed=steps_done(job.folder))

        if cores() < 2:
            for job in jobs:
                _train(job.run, job.folder)
                show()
            return
        context = multiprocessing.get_context("spawn")
        threads = max(1, cores() // len(jobs))
        pipes = [context.Pipe(duplex=False) for _ in jobs]
        processes = [
            context.Process(target=_worker, args=(job.run, job.folder, threads, pipe[1]), daemon=True)
            for job, pipe in zip(jobs, pipes, strict=True)
        ]
        try:
            for process in processes:
                process.start()
            while any(process.is_alive() for process in processes):
                if any(process.exitcode for process in processes):
                    break
                show()
                time.sleep(0.25)
            for job, process, (complaint, _) in zip(jobs, processes, pipes, strict=True):
                if complaint.poll():
                    raise SaccadeError(complaint.recv())
                if process.exitcode:
                    raise SaccadeError(f"training {job.label} ended before its time (exit code {process.exitcode})")
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
                    process.join()


def _worker(run: RunConfig, folder: Path, threads: int, complaint: Connection) -> None:
    import torch

    torch.set_num_threads(threads)
    try:
        _train(run, folder)
    except SaccadeError as error:
        complaint.send(str(error))
        raise SystemExit(2) from error


def _train(run: RunConfig, folder: Path) -> None:
    from saccade.training.run import train_run

    train_run(run, folder, console=Console(quiet=True))


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def steps_done(folder: Path) -> int:
    """How far a run is, by the last line of its metrics.csv."""
    try:
        return int((folder / "metrics.csv").read_text(encoding="utf-8").splitlines()[-1].partition(",")[0])
    except (OSError, ValueError, IndexError):
        return 0
