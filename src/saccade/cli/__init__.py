"""`saccade VERB …`: one small file per group of verbs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from saccade.cli import (
    caption,
    claims,
    data,
    demo,
    densecap,
    detect,
    evaluate,
    explain,
    extract,
    leaderboard,
    metrics,
    models,
    official,
    parse,
    score,
    train,
    world,
)
from saccade.core.errors import SaccadeError
from saccade.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which words go with which part of a picture? Train, evaluate and look into models that know.\n\n"
    "Begin with `saccade demo`, or step by step: `saccade world make`, `saccade train scan data=world`, "
    '`saccade eval runs/scan`, `saccade explain picture.png "a red cube" --model runs/scan`.',
)
app.add_typer(world.app, name="world", rich_help_panel="Data")
app.add_typer(data.app, name="data", rich_help_panel="Data")
app.command("extract", rich_help_panel="Data")(extract.extract)
app.command("parse", rich_help_panel="Data")(parse.parse)
app.command("demo", rich_help_panel="Begin here")(demo.demo)
app.command("models", rich_help_panel="Models")(models.models)
app.command("train", rich_help_panel="Models")(train.train)
app.command("eval", rich_help_panel="Models")(evaluate.evaluate)
app.command("leaderboard", rich_help_panel="Models")(leaderboard.leaderboard)
app.command("claims", rich_help_panel="Models")(claims.claims)
app.add_typer(metrics.app, name="metrics", rich_help_panel="Models")
app.command("caption", rich_help_panel="Use a model")(caption.caption)
app.command("score", rich_help_panel="Use a model")(score.score)
app.command("explain", rich_help_panel="Use a model")(explain.explain)
app.command("detect", rich_help_panel="Use a model")(detect.detect)
app.command("densecap", rich_help_panel="Use a model")(densecap.densecap)
app.command("import", rich_help_panel="Official checkpoints")(official.import_checkpoint)
app.command("verify", rich_help_panel="Official checkpoints")(official.verify_folder)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"saccade {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; what a user can mend is one line on standard error and exit code 2."""
    # Threads that sleep while they wait, not spin: on a busy machine spinning made training 15 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except SaccadeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk or a closed pipe where no file of ours was being written
        print(f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        sys.exit(2)
