"""`saccade demo`: the whole path, from a made-up world to pictures found by a sentence and the reasons why."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.explain import Stage

MARK = "demo.json"  # says that a folder is a demo's, so that the next one may replace what is in it
SYSTEMS = {"scan": "SCAN", "vse": "Pooled cosine (VSE++)"}


class Clock:
    """Prints each stage with its time, and keeps them for the report."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total = console, total
        self.stages: list[Stage] = []

    @contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        from saccade.explain import Stage

        at = f"{len(self.stages) + 1}/{self.total}"
        self.console.print(f"[bold]{at}  {name}[/bold]  {detail}", highlight=False)
        start = time.perf_counter()
        yield
        self.stages.append(Stage(name, time.perf_counter() - start, detail))
        self.console.print(f"     {self.stages[-1].seconds:.1f} s", highlight=False)


def demo(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Training settings for both models, e.g. epochs=4."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the report and all that was made.")] = Path(
        "demo"
    ),
    pictures: Annotated[
        int, typer.Option(min=50, help="How many pictures the world has; fewer is quicker and finds less.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another world and another training run.")] = 0,
) -> None:
    """See the idea work: make a world, train SCAN on it, search it by sentence, and show why each picture was found.

    Makes pictures with captions, turns them into regions, trains SCAN and a pooled baseline, measures both on ordinary
    pictures and on hard twins (the same words bound otherwise), and writes a page to look at: OUT/report.html. Takes
    about two minutes on two cores and needs no network.

    Example: saccade demo --out demo
    """
    from saccade.cli.demo_report import Trained, write_report
    from saccade.cli.side_by_side import Job, train_side_by_side
    from saccade.core.files import write_json
    from saccade.core.progress import progress_bar
    from saccade.data import DataConfig
    from saccade.features import open_split
    from saccade.models import Matcher, load_model
    from saccade.tasks import similarity_table
    from saccade.training.run import run_config
    from saccade.version import __version__
    from saccade.world import WorldConfig, make_world

    console = Console()
    words = ["data=world", f"data.pictures={pictures}", f"data.seed={seed}", f"trainer.seed={seed}"]
    words += settings or []
    runs = {system: run_config(system, words) for system in SYSTEMS}  # a misspelt setting is told before any work
    make_room(out)
    write_json(out / MARK, {"saccade": __version__, "pictures": pictures, "seed": seed, "settings": settings or []})
    clock = Clock(console, 5)
    start = time.perf_counter()

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
        report = write_report(out, world, splits, trained, clock.stages, seed)
    console.print(f"\n{report.summary}", highlight=False)
    console.print(
        f"[bold]{escape(str(report.path))}[/bold]  ({time.perf_counter() - start:.0f} s in all)", highlight=False
    )


def make_room(out: Path) -> None:
    """Make room for a demo: an earlier one is replaced, anything else is left alone."""
    if out.exists() and not out.is_dir():
        raise SaccadeError(f"{out} is a file: --out names the folder for the demo")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).exists():
        raise SaccadeError(f"{out} holds files that are not a demo's: give another folder with --out")
    for part in ("models", "strips", "pictures"):
        shutil.rmtree(out / part, ignore_errors=True)
    (out / "report.html").unlink(missing_ok=True)
