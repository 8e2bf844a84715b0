"""The claims' runs: fill the caches once, train and measure what is not there yet, and keep what was measured.

A run folder that holds `measured.json` is finished. Everything else in it serves to go on with a training that was
stopped, or to measure again. Reports need no model.
"""

from __future__ import annotations

import csv
import io
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file, only_one, read_json, read_text, write_json
from saccade.lab.claims.claim import Claim
from saccade.lab.claims.plan import Request, Run, Side, plan
from saccade.lab.workers import Ended, run_jobs
from saccade.models import Model, load_model
from saccade.tasks import task_of
from saccade.tasks.evaluator import Arrays, Evaluator, Scores, SplitForModels
from saccade.training.run import train_run

MEASURED = "measured.json"
FAILURE = "failure.json"
NO_MEMORY = "out of memory"  # as PyTorch says it
TRIES = 3  # of a run that found no memory beside others
split_for_models = lru_cache(maxsize=8)(SplitForModels)  # a worker meets the same few again and again


@dataclass(frozen=True)
class Measured:
    """What is known of a finished run."""

    facts: Mapping[str, Any]  # seconds, device, versions
    kept: Mapping[str, Arrays]  # by split
    scores: Mapping[str, Scores]  # the same, read


def is_finished(run: Run, runs: Path) -> bool:
    """Whether all that the claims want of this run is there."""
    folder, evaluator = runs / run.name, run.evaluator
    if not (folder / MEASURED).exists() or not (folder / evaluator.file).exists():
        return False
    known = read_json(folder / MEASURED)
    if goes_on(run, known) or not all(split in known["splits"] for split in run.splits):
        return False
    return not run.tables or all(evaluator.tables(folder, split).exists() for split in run.splits)


def goes_on(run: Run, facts: Mapping[str, Any]) -> bool:
    """Whether a run that still rose at its last step is now given more of them."""
    return not facts["flat"] and run.cap > facts["cap"]


def save_measured(
    folder: Path, evaluator: Evaluator[Any, Any], facts: Mapping[str, Any], kept: Mapping[str, Arrays]
) -> None:
    arrays: dict[str, Any] = {
        f"{split}/{name}": values for split, arrays in kept.items() for name, values in arrays.items()
    }
    with atomic_file(folder / evaluator.file) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    found = {split: evaluator.scores(arrays) for split, arrays in kept.items()}
    splits = {split: {"figures": dict(one.figures), "chance": dict(one.chance)} for split, one in found.items()}
    write_json(folder / MEASURED, {**facts, "splits": splits})


def load_measured(folder: Path, evaluator: Evaluator[Any, Any]) -> Measured | None:
    """What was measured of a run, or None if it is not finished."""
    path = folder / evaluator.file
    if not (folder / MEASURED).exists() or not path.exists():
        return None
    kept: dict[str, dict[str, np.ndarray]] = {}
    try:
        for key, values in read_npz(path).items():
            split, _, name = key.partition("/")
            kept.setdefault(split, {})[name] = values
        scores = {split: evaluator.scores(arrays) for split, arrays in kept.items()}
    except (SaccadeError, ValueError, KeyError) as error:
        raise SaccadeError(f"{path} is damaged: remove {folder}, and it is trained again") from error
    facts = {key: value for key, value in read_json(folder / MEASURED).items() if key != "splits"}
    return Measured(facts, kept, scores)


def curve_of(folder: Path, metric: str) -> list[tuple[int, float]]:
    """(step, figure) of every evaluation of a run, as its metrics.csv has them."""
    rows = csv.DictReader(io.StringIO(read_text(folder / "metrics.csv")))
    return [(int(row["step"]), round(float(row[metric]), 3)) for row in rows if row["split"] == "dev"]


def chosen_rate(side: Side, runs: Path) -> float | None:
    """The learning rate that was best on the held-out part; None while one is still to be tried, or if all failed."""
    if len(side.by_rate) == 1:
        return next(iter(side.by_rate))
    found: dict[float, float] = {}
    for rate, run in zip(side.by_rate, side.search, strict=True):
        if is_finished(run, runs):
            found[rate] = read_json(runs / run.name / MEASURED)["held_out"]
        elif not (runs / run.name / FAILURE).exists():
            return None
    return max(found, key=lambda rate: found[rate], default=None)


def runs_of(side: Side, runs: Path) -> list[Run]:
    """What can be trained now: the search, and when it is over the other seeds at the rate that it chose."""
    rate = chosen_rate(side, runs)
    return [*side.search, *(side.by_rate[rate][1:] if rate is not None else ())]


def drop_losers(side: Side, runs: Path) -> None:
    """Keep no weights of a learning rate that was not chosen: a leaderboard of the runs would show it as a model."""
    rate = chosen_rate(side, runs)
    for tried, run in zip(side.by_rate, side.search, strict=True):
        if rate not in (None, tried) and not (runs / run.name / "last.ckpt").exists():  # nothing will go on from it
            shutil.rmtree(runs / run.name / "best", ignore_errors=True)


def train_and_measure(run: Run, runs: Path, lean: bool) -> None:
    """Train a run, or go on with it, and measure it. With `lean`, its weights are not kept."""
    folder, evaluator = runs / run.name, run.evaluator
    known = load_measured(folder, evaluator)
    kept: dict[str, Arrays] = {}
    if known is not None and (folder / "best").exists() and not goes_on(run, known.facts):  # another split is wanted
        facts, kept = dict(known.facts), dict(known.kept)
    else:
        config = run.config if run.before is None else replace(run.config, start=trained_before(run.before, runs))
        result = train_run(config, folder, resume=True, console=Console(quiet=True))
        kept_facts = ("device", "saccade", "torch", "python")
        surroundings = {
            key: value for key, value in read_json(folder / "environment.json").items() if key in kept_facts
        }
        facts = {
            "run": run.name,
            "seconds": round(result.seconds, 1),
            "learning_rate": run.config.trainer.learning_rate,
            "steps": result.steps,
            "best_step": result.best_step,
            "cap": run.cap,
            "flat": result.stopped_early,  # else it ended while the held-out part still rose
            "selection": result.selection,
            "held_out": round(result.best[result.selection], 3),
            "curve": curve_of(folder, result.selection),
            **surroundings,
        }
    model: Model = load_model(folder).to(run.config.trainer.accelerator)
    facts["parameters"] = model.parameter_count()
    for split in run.splits:
        data = split_for_models(run.config.data, split).regions_for(model, folder, run.task)
        kept[split] = evaluator.measure(model, data, run.config.task, folder, run.tables)
    save_measured(folder, evaluator, facts, kept)
    (folder / FAILURE).unlink(missing_ok=True)
    if facts["flat"]:  # else somebody may give it a higher cap, and it goes on from here
        (folder / "last.ckpt").unlink(missing_ok=True)
    for name in ("last", "tensorboard", *(("best",) if lean and facts["flat"] else ())):
        shutil.rmtree(folder / name, ignore_errors=True)


def trained_before(run: Run, runs: Path) -> Path:
    """The folder of the run that another starts from, trained if it is not there; whoever comes second waits."""
    folder = runs / run.name
    with only_one(folder):
        if not (folder / "last").exists():
            train_run(run.config, folder, resume=True, console=Console(quiet=True))
            (folder / "last.ckpt").unlink(missing_ok=True)
    return folder


@dataclass
class Outcome:
    """How a visit to the lab went."""

    finished: int = 0  # runs that are there now
    failed: dict[str, str] = field(default_factory=dict)  # name of the run → why
    left: int = 0  # not done when the time was up


def run_claims(
    claims: Sequence[Claim],
    request: Request,
    runs: Path,
    jobs: int = 1,
    threads: int = 1,
    minutes: float | None = None,
    lean: bool = False,
    console: Console | None = None,
    run_job: Callable[..., None] = train_and_measure,
) -> Outcome:
    """Train and measure whatever the claims need and is not there yet.

    `run_job(run, runs=…, lean=…)` does one run; it is called in another process.
    """
    console = console or Console()
    until = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    sides = plan(claims, request)
    wanted = sum(len(side.search) + request.seeds - 1 for side in sides)
    known = {run.name: run for side in sides for run in runs_of(side, runs)}
    todo = [run for run in sorted(known.values(), key=lambda run: run.seed) if not is_finished(run, runs)]
    outcome = Outcome(finished=len(known) - len(todo))
    to_do = wanted - outcome.finished
    console.print(
        f"{wanted} runs for {len(claims)} claim{'s' if len(claims) > 1 else ''}: {outcome.finished} are there, "
        f"{to_do} to do, {min(jobs, max(to_do, 1))} at once",
        highlight=False,
    )
    if not todo:
        return outcome
    if run_job is train_and_measure:
        fill_caches(todo, console)
    display = _Display(console, to_do)
    begun: Counter[str] = Counter()
    with display.bar:

        def started(run: Run) -> None:
            begun[run.name] += 1
            display.started(run)

        def ended(end: Ended[Run]) -> list[Run]:
            if NO_MEMORY in (end.failure or "") and begun[end.job.name] < TRIES:
                display.again(end)
                return [end.job]
            if end.failure is None:
                outcome.finished += 1
            else:
                outcome.failed[end.job.name] = end.failure
                write_json(runs / end.job.name / FAILURE, end.failure)
            display.ended(end)
            searched = [side for side in sides if any(run.name == end.job.name for run in side.search)]
            for side in searched:
                drop_losers(side, runs)
            new = {run.name: run for side in searched for run in runs_of(side, runs) if run.name not in known}
            known.update(new)
            return [run for run in new.values() if not is_finished(run, runs)]

        run_jobs(todo, partial(run_job, runs=runs, lean=lean), jobs, threads, until, started, ended)
    if time.monotonic() > until:
        outcome.left = wanted - outcome.finished - len(outcome.failed)
    return outcome


def fill_caches(todo: Sequence[Run], console: Console) -> None:
    """Open every split once here, so that workers find worlds and regions made, and need not wait in turn."""
    from saccade.vision.extractors import trainable_backbone

    done = set()
    for run in todo:
        data, open = replace(run.config.data, in_memory=False), task_of(run.config.system).open
        size = trainable_backbone(data.extractor).size if run.config.backbone.train else None
        judging = () if data.held_out else (data.dev_split,)
        for split in dict.fromkeys((data.train_split, *judging, *run.splits)):
            if (data, split, size, open) not in done:
                done.add((data, split, size, open))
                opened = open(data, split, size)
                parts = {name: getattr(opened, name, None) for name in ("images", "texts", "impressions")}
                words = {"images": "pictures"}
                counts = [f"{len(part)} {words.get(name, name)}" for name, part in parts.items() if part is not None]
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
        self.overall = self.bar.add_task("runs", total=total)
        self.rows: dict[str, TaskID] = {}

    def started(self, run: Run) -> None:
        self.rows[run.name] = self.bar.add_task(escape(f"  {run.name}"), total=None)
        if not self.console.is_terminal:
            self._say(f"begun   {run.name}")

    def again(self, end: Ended[Run]) -> None:
        self.bar.remove_task(self.rows.pop(end.job.name))
        self._say(f"later   {end.job.name}: no memory was left for it beside the others")

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
