"""`saccade VERB …`: one small file per group of verbs, imported when its verb is called.

`saccade --help`, shell completion and a mistyped verb read the table below and import no verb at all: what a verb needs
(PyTorch, PyArrow) takes seconds to import.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from saccade.core.errors import SaccadeError
from saccade.version import __version__


class Verb(NamedTuple):
    """Where a verb is, and how the list of verbs shows it: `help` is the first paragraph of its own help."""

    panel: str
    module: str
    attribute: str  # a function, or the `app` of a group of verbs
    help: str


VERBS = {
    "world": Verb("Data", "world", "app", "Make and look at the built-in world of toys."),
    "data": Verb(
        "Data",
        "data",
        "app",
        "Look at, convert and check features and captions: stores, precomputed arrays, TSV, npz, HDF5, LMDB.",
    ),
    "extract": Verb(
        "Data",
        "extract",
        "extract",
        "Extract the region features of photos, with boxes and original sizes, into a feature store.",
    ),
    "parse": Verb(
        "Data",
        "parse",
        "parse",
        "Which things does a sentence name, what are they like, and how do they stand to each other?",
    ),
    "demo": Verb(
        "Begin here",
        "lab",
        "demo",
        "See the idea work: make a world, train SCAN on it, search it by sentence, and show why each picture was "
        "found.",
    ),
    "doctor": Verb(
        "Begin here",
        "doctor",
        "doctor",
        "Show versions, devices, compilers and switches, and which backends can run on this machine, or why not.",
    ),
    "models": Verb(
        "Models",
        "models",
        "models",
        "List the systems (task, paper, recipes, whether official checkpoints can be imported) and the trained models.",
    ),
    "weights": Verb("Models", "weights", "app", "List and get weights of others by name: backbones, word vectors."),
    "train": Verb("Models", "models", "train", "Train a model into a run folder."),
    "eval": Verb(
        "Models",
        "models",
        "evaluate",
        "How good trained models are, each by the measures of its task.",
    ),
    "leaderboard": Verb(
        "Models",
        "lab",
        "leaderboard",
        "Compare matching models on one data set: recall both ways, size, what an index keeps, time and memory.",
    ),
    "claims": Verb(
        "Models",
        "lab",
        "claims",
        "Put papers' claims to the test: train each variant over several seeds, compare them, say whether it holds.",
    ),
    "probe": Verb(
        "Models",
        "lab",
        "probe",
        "Does a matcher bind words to things, and are its reasons its reasons?",
    ),
    "metrics": Verb("Models", "metrics", "app", "Score captions, and see which scores people agree with."),
    "caption": Verb("Use a model", "predict", "caption", "Say what is in photos, word by word."),
    "score": Verb("Use a model", "predict", "score", "How well each picture fits each sentence."),
    "explain": Verb(
        "Use a model", "models", "explain", "Draw which part of the picture each word found, or came from."
    ),
    "detect": Verb(
        "Use a model",
        "detect",
        "detect",
        "Draw and list the regions an extractor finds in your photos: names, confidence, and place in pixels.",
    ),
    "densecap": Verb(
        "Use a model",
        "predict",
        "densecap",
        "Find the parts of a photo that are worth a phrase, and say one of each.",
    ),
    "import": Verb(
        "Official checkpoints",
        "official",
        "import_checkpoint",
        "Turn an official checkpoint into a model folder (config.json, model.safetensors, vocabulary.json).",
    ),
    "verify": Verb(
        "Official checkpoints",
        "official",
        "verify_folder",
        "Reproduce what the official code computed, stage by stage; exit code 1 if any stage is off.",
    ),
}


class LazyVerbs(TyperGroup):
    """The verbs as the table says them; the one that is called is imported in its place."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in VERBS:
            self.commands[args[0]] = load_verb(args[0])
        return super().resolve_command(ctx, args)


def load_verb(name: str) -> Any:
    """The command (or group of commands) behind a verb, with its options."""
    verb = VERBS[name]
    found = getattr(import_module(f"saccade.cli.{verb.module}"), verb.attribute)
    holder = typer.Typer(context_settings=CONTEXT)
    holder.callback()(_nothing)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return typer.main.get_group(holder).commands[name]


def _nothing() -> None:
    pass


CONTEXT = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    cls=LazyVerbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    help="Which words go with which part of a picture? Train, evaluate and look into models that know.\n\n"
    "Begin with `saccade demo`, or step by step: `saccade world make`, `saccade train scan data=world`, "
    '`saccade eval runs/scan`, `saccade explain picture.png "a red cube" --model runs/scan`.',
)
for _name, _verb in VERBS.items():
    app.command(_name, help=_verb.help, rich_help_panel=_verb.panel)(_nothing)


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
