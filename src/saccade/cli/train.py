"""`saccade train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from saccade.core.errors import SaccadeError


def train(
    system: Annotated[str | None, typer.Argument(help="Which model, e.g. scan; `saccade models` lists them.")] = None,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings, e.g. data=world dim=256 epochs=10.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder; runs/SYSTEM if not given.")] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings; KEY=VALUE words go over it.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the settings and leave.")] = False,
) -> None:
    """Train a model into a run folder.

    Settings are the paper's unless Saccade has a recipe for the data set; a KEY is a name (dim, epochs, margin) or a
    path (model.dim, trainer.seed). A killed run goes on with --resume and ends as if it had never stopped.

    Example: saccade train scan data=world epochs=10 --out runs/scan
    """
    from saccade.core.config import override, to_dict
    from saccade.tasks import task_of
    from saccade.training.run import load_run_config, recipe, run_config, train_run

    console = Console()
    if resume is not None:
        words = [*([system] if system and "=" in system else []), *(settings or [])]
        run, out = override(load_run_config(resume), words), resume
        if system and "=" not in system and system != run.system:
            raise SaccadeError(f"{resume} is a run of {run.system}, not of {system}")
    elif system is None:
        raise SaccadeError("name a model to train, e.g. `saccade train scan data=world`; `saccade models` lists them")
    else:
        run = run_config(system, settings or [], config)
        out = out or Path("runs") / system
    if show:
        import yaml

        console.out(yaml.safe_dump(to_dict(run), sort_keys=False), end="", highlight=False)
        return
    shipped = "the recipe for it" if recipe(f"{run.system}-{run.data.name}") else "the paper's settings"
    console.print(f"training {run.system} on {run.data.name} with {shipped}, into {out}", markup=False, highlight=False)
    result = train_run(run, out, resume is not None, console)
    best = ", ".join(f"{name} {value:.1f}" for name, value in result.headline().items())
    console.print(f"best at step {result.best_step}: {best} ({result.seconds:.0f} s in all)", highlight=False)
    for command in task_of(run.system).next_steps:
        console.print(f"next: {command.format(run=out)}", markup=False, highlight=False, soft_wrap=True)
