"""`saccade demo`: the whole path, from a made-up world to pictures found by a sentence and the reasons why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


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
    from saccade.lab.demo import run_demo

    console = Console()
    start = time.perf_counter()
    report = run_demo(settings or [], out, pictures, seed, console)
    console.print(f"\n{report.summary}", highlight=False)
    console.print(
        f"[bold]{escape(str(report.path))}[/bold]  ({time.perf_counter() - start:.0f} s in all)", highlight=False
    )
