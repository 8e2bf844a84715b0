"""The demo: the whole path, from a made-up world to pictures found by a sentence and the reasons why."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from saccade.core.errors import SaccadeError
from saccade.core.files import write_json
from saccade.core.progress import progress_bar
from saccade.data import DataConfig, open_split
from saccade.explain import Stage
from saccade.lab.demo_report import Trained, Written, write_report
from saccade.lab.workers import Ended, cores, run_jobs
from saccade.models import Matcher, load_model
from saccade.tasks.matching.evaluate import similarity_table
from saccade.training.run import RunConfig, run_config, train_run
from saccade.version import __version__
from saccade.world import WorldConfig, make_world

MARK = "demo.json"  # says that a folder is a demo's, so that the next one may replace what is in it
SYSTEMS = {"scan": "SCAN", "vse": "Pooled cosine (VSE++)"}


class Clock:
    """Prints each stage with its time, and keeps them for the report."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total = console, total
        self.stages: list[Stage] = []

    @contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        at = f"{len(self.stages) + 1}/{self.total}"
        self.console.print(f"[bold]{at}  {name}[/bold]  {detail}", highlight=False)
        start = time.perf_counter()
        yield
        self.stages.append(Stage(name, time.perf_counter() - start, detail))
        self.console.print(f"     {self.stages[-1].seconds:.1f} s", highlight=False)


def run_demo(settings: Sequence[str], out: Path, pictures: int, seed: int, console: Console) -> Written:
    """Make a world, train SCAN and a pooled baseline on it, measure both, and write the report into `out`.

    Raises: SaccadeError, before any work, if a setting is misspelt or `out` holds something else.
    """
    words = ["data=world", f"data.pictures={pictures}", f"data.seed={seed}", f"trainer.seed={seed}", *settings]
    runs = {system: run_config(system, words) for system in SYSTEMS}
    make_room(out)
    write_json(out / MARK, {"saccade": __version__, "pictures": pictures, "seed": seed, "settings": list(settings)})
    clock = Clock(console, 5)

    world_config = WorldConfig(pictures=pictures, seed=seed)
    counts = world_config.counts()
    with (
        clock.stage("World", f"{sum(counts.values()):,} pictures of toys, five captions each"),
        progress_bar("painting") as tell,
    ):
        world = make_world(world_config, progress=tell)
    with clock.stage("Features", "the regions that the extractor finds in each picture"):
        data = DataConfig("world", pictures=pictures, seed=seed)
        splits = {name: open_split(data, name) for name in ("train", "dev", "test", "hard")}

    texts, epochs = len(splits["train"].texts), runs["scan"].trainer.epochs
    folders = {system: out / "models" / system for system in SYSTEMS}
    with clock.stage("Training", f"SCAN and a pooled baseline side by side, {texts:,} captions, {epochs} epochs"):
        steps = epochs * (texts // runs["scan"].trainer.batch_size)
        train_side_by_side([Job(runs[name], folders[name], SYSTEMS[name], steps) for name in SYSTEMS], console)
    trained = [
        Trained(system, label, folders[system], load_model(folders[system], Matcher))
        for system, label in SYSTEMS.items()
    ]
    with clock.stage("Evaluation", "every sentence with every picture"):
        for one in trained:
            one.tables.update({name: similarity_table(one.model, splits[name]) for name in ("test", "hard")})
    with clock.stage("Report", "ten searches, six pairs of twins, drawn at random"):
        return write_report(out, world, splits, trained, clock.stages, seed)


def make_room(out: Path) -> None:
    """Make room for a demo: an earlier one is replaced, anything else is left alone."""
    if out.exists() and not out.is_dir():
        raise SaccadeError(f"{out} is a file: --out names the folder for the demo")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise SaccadeError(f"{out} holds files that are not a demo's: give another folder with --out")
    for part in ("models", "strips", "pictures"):
        shutil.rmtree(out / part, ignore_errors=True)
    (out / "report.html").unlink(missing_ok=True)


@dataclass(frozen=True)
class Job:
    """What to train, into which folder, under which name, and how many steps it will take."""

    run: RunConfig
    folder: Path
    label: str
    steps: int


def train_side_by_side(jobs: Sequence[Job], console: Console) -> None:
    """Train all at once, each in a process of its own with its share of the cores, or in turn where there is one.

    Small recurrent models keep one core busy and gain next to nothing from a second one, so two trainings side by side
    take hardly longer than one. Raises: SaccadeError if a training fails; the others are ended then.
    """
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bars = [progress.add_task(job.label, total=job.steps) for job in jobs]

        def show() -> None:
            for bar, job in zip(bars, jobs, strict=True):
                progress.update(bar, completed=steps_done(job.folder))

        def ended(end: Ended[Job]) -> None:
            if end.failure is not None:
                raise SaccadeError(end.failure)

        if cores() < 2:
            for job in jobs:
                train_job(job)
                show()
        else:
            run_jobs(jobs, train_job, len(jobs), max(1, cores() // len(jobs)), ended=ended, tick=show)


def train_job(job: Job) -> None:
    train_run(job.run, job.folder, console=Console(quiet=True))


def steps_done(folder: Path) -> int:
    """How far a run is, by the last line of its metrics.csv."""
    try:
        return int((folder / "metrics.csv").read_text(encoding="utf-8").splitlines()[-1].partition(",")[0])
    except (OSError, ValueError, IndexError):
        return 0
