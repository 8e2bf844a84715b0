"""The claims' runs: make the plan, fill the caches once, train and measure what is not there yet, say how it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from saccade.core.files import write_json
from saccade.lab.claims.claim import Claim
from saccade.lab.claims.measure import FAILURE, is_finished, train_and_measure
from saccade.lab.claims.plan import Request, Run, plan
from saccade.lab.workers import Ended, run_jobs
from saccade.tasks import task_of


class RunJob(Protocol):
    """Trains and measures one run; it is called in another process."""

    def __call__(self, run: Run, runs: Path, lean: bool) -> None: ...


@dataclass
class Outcome:
    """How a visit to the lab went."""

    finished: int = 0  # runs that are there now
    failed: dict[str, str] = field(default_factory=dict)  # name of the run → why
    left: list[str] = field(default_factory=list)  # not begun when the time was up


def run_claims(
    claims: Sequence[Claim],
    request: Request,
    runs: Path,
    jobs: int = 1,
    threads: int = 1,
    minutes: float | None = None,
    lean: bool = False,
    console: Console | None = None,
    run_job: RunJob = train_and_measure,
) -> Outcome:
    """Train and measure whatever the claims need and is not there yet."""
    console = console or Console()
    until = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    wanted = plan(claims, request)
    todo = [run for run in wanted if not is_finished(run, runs)]
    outcome = Outcome(finished=len(wanted) - len(todo))
    console.print(
        f"{len(wanted)} runs for {len(claims)} claim{'s' if len(claims) > 1 else ''}: {outcome.finished} are there, "
        f"{len(todo)} to do, {min(jobs, max(len(todo), 1))} at once",
        highlight=False,
    )
    if not todo:
        return outcome
    if run_job is train_and_measure:
        fill_caches(todo, console)
    with _Display(console, len(todo)).shown() as display:

        def ended(end: Ended[Run]) -> None:
            if end.failure is None:
                outcome.finished += 1
            else:
                outcome.failed[end.job.name] = end.failure
                write_json(runs / end.job.name / FAILURE, end.failure)
            display.ended(end)

        job = partial(run_job, runs=runs, lean=lean)
        left = run_jobs(todo, job, min(jobs, len(todo)), threads, until, display.started, ended)
    outcome.left = [run.name for run in left]
    return outcome


def fill_caches(todo: Sequence[Run], console: Console) -> None:
    """Open every split once here, so that the workers find worlds made and photos seen, and need not wait in turn."""
    from saccade.vision.extractors import trainable_backbone

    done = set()
    for run in todo:
        data, open = replace(run.config.data, in_memory=False), task_of(run.config.system).open
        size = trainable_backbone(data.extractor).size if run.config.backbone.train else None
        for split in dict.fromkeys((data.train_split, data.dev_split, *run.splits)):
            if (data, split, size, open) not in done:
                done.add((data, split, size, open))
                opened = open(data, split, size)
                parts = {"pictures": getattr(opened, "images", None), "texts": getattr(opened, "texts", None)}
                counts = [f"{len(part)} {name}" for name, part in parts.items() if part is not None]
                console.print(f"{data.name}/{split}: {', '.join(counts)}", highlight=False)


class _Display:
    """A bar with the runs under way on a terminal; elsewhere a line when a run begins and when it ends."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.done, self.failed = console, total, 0, 0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.rows: dict[str, TaskID] = {}

    @contextmanager
    def shown(self) -> Iterator[_Display]:
        with self.bar:
            self.overall = self.bar.add_task("runs", total=self.total)
            yield self

    def started(self, run: Run) -> None:
        self.rows[run.name] = self.bar.add_task(escape(f"  {run.name}"), total=None)
        if not self.console.is_terminal:
            self._say(f"begun   {run.name}")

    def ended(self, end: Ended[Run]) -> None:
        self.bar.remove_task(self.rows.pop(end.job.name))
        self.done += 1
        self.bar.update(self.overall, completed=self.done)
        state = "failed " if end.failure else "done   "
        why = f": {end.failure}" if end.failure else ""
        under_way = f"{self.done}/{self.total}, {len(self.rows)} running"
        self._say(f"{state} {end.job.name} ({end.seconds:.0f} s; {under_way}){why}")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
