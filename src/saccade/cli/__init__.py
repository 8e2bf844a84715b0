"""`saccade VERB …`: one small file per group of verbs, imported when its verb is called.

`saccade --help`, shell completion and a mistyped verb read verbs.txt, which lists verbs and options, and import no verb
at all: what a verb needs (PyTorch, PyArrow) takes seconds to import.
"""

from __future__ import annotations

import ast
import atexit
import inspect
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

import typer
from typer.core import TyperGroup

from saccade.core.errors import SaccadeError
from saccade.core.interrupt import CODE as INTERRUPTED
from saccade.core.interrupt import interruptible
from saccade.core.text import escaped
from saccade.version import __version__


class Verb(NamedTuple):
    """Where a verb is, and how the list of verbs shows it: `help` is the first paragraph of its own help."""

    panel: str
    module: str
    attribute: str  # a function, or the `app` of a group of verbs
    help: str


def _read_table() -> tuple[dict[str, Verb], dict[str, dict[str, tuple[list[str], str]]]]:
    """What verbs.txt says: the verbs, and by MODULE.FUNCTION the words in brackets and the help of each parameter."""
    verbs: dict[str, Verb] = {}
    options: dict[str, dict[str, tuple[list[str], str]]] = {}
    panel = command = ""
    for line in (Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").splitlines():
        entry = re.fullmatch(r"( *)(\w+)(?: \((.*?)\))?: (.*)", line)
        if entry is not None and entry[1]:
            options[command][entry[2]] = (entry[3] or "").split(), entry[4]
        elif entry is not None:
            command = entry[3]
            module, _, attribute = command.rpartition(".")
            verbs[entry[2]] = Verb(panel, module, attribute, entry[4])
        elif line.startswith("# "):
            panel = line[2:]
        elif line:
            command = line
        options.setdefault(command, {})
    return verbs, options


VERBS, OPTIONS = _read_table()


TAG = re.compile(r"(\[[a-z#/@][^[]*?])")  # what Rich would take for markup and leave out: "[x1, y1, x2, y2]"
WRITTEN = ("out", "json_file", "attention", "plot", "each")  # parameters that name a file to write
WRITTEN_BY = {
    "parse.parse": ("picture",),
    "use.search.search": ("explain",),
    "use.moment.moment": ("cut",),
    "use.clicks.ctr": ("picture",),
    "world.videos": ("films",),
    "models.evaluate": ("captions", "answers"),
}  # and some that do so in one verb


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Give the parameters of a command the help, short names, METAVAR and range (1..9) that verbs.txt has for them.

    Those before `*` are arguments, the others options; one with an annotation of typer's stays as it is. A command is
    not begun whose output is one of the files that it reads.
    """
    name = f"{command.__module__.removeprefix('saccade.cli.')}.{command.__name__}"
    known = OPTIONS["shared"] | OPTIONS.get(name, {})
    parameters = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        hint = parameter.annotation
        if parameter.name in known and get_origin(hint) is not Annotated:
            words, help = known[parameter.name]
            flags = [word for word in words if word.startswith("-")]
            settings: dict[str, Any] = {"help": TAG.sub(r"\\\1", help)}
            for word in words:
                low, dots, high = word.partition("..")
                if dots and (low or high).replace(".", "").isdigit():
                    settings |= {name: ast.literal_eval(end) for name, end in (("min", low), ("max", high)) if end}
                elif word not in flags:
                    settings["metavar"] = word
            if parameter.kind is not parameter.KEYWORD_ONLY:
                hint = Annotated[hint, typer.Argument(**settings)]
            else:
                long = [] if any(flag.startswith("--") for flag in flags) else [f"--{parameter.name.replace('_', '-')}"]
                hint = Annotated[hint, typer.Option(*long, *flags, **settings)]
        parameters.append(parameter.replace(annotation=hint, kind=parameter.KEYWORD_ONLY))
    written = [*WRITTEN, *WRITTEN_BY.get(name, ())]

    @wraps(command)
    def checked(**given: Any) -> None:
        from saccade.cli.options import check_outputs

        check_outputs(given, written)
        command(**given)

    checked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return checked


class LazyVerbs(TyperGroup):
    """The verbs as the table says them; the one that is called is imported in its place."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in VERBS:
            self.commands[args[0]] = load_verb(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        _missing_letters()  # what was drawn before is none of this command's
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # `main` says what to do next; typer would say "Aborted"
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if note := _missing_letters():
                print(f"note: {note}", file=sys.stderr)


def _missing_letters() -> str:
    fonts = sys.modules.get("saccade.explain.fonts")
    return fonts.missing_note() if fonts is not None else ""


def load_verb(name: str) -> Any:
    """The command (or group of commands) behind a verb, with its options."""
    verb = VERBS[name]
    found = getattr(import_module(f"saccade.cli.{verb.module}"), verb.attribute)
    holder = typer.Typer(context_settings=CONTEXT)
    holder.callback()(_nothing)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(described(found))
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
    """Run the command line; what a user can mend is one line on standard error and exit code 2, Ctrl-C one and 130."""
    # Threads that sleep while they wait, not spin: on a busy machine spinning made training 15 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with interruptible():
        try:
            app()
        except SaccadeError as error:
            print(f"error: {escaped(error)}", file=sys.stderr)
            sys.exit(2)
        except OSError as error:  # a full disk or a closed pipe where no file of ours was being written
            where = f": {escaped(error.filename)}" if error.filename else ""
            print(f"error: {error.strerror or error}{where}", file=sys.stderr)
            sys.exit(2)


def run() -> None:
    """`main` as a process, which ends at once: to free what PyTorch made, object by object, takes most of a second."""
    code = 1  # of a traceback

    def end() -> None:
        with suppress(OSError, ValueError):  # which Python reports as it ends
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(code)

    atexit.register(end)  # what is registered first is called last, after all threads have ended and others tidied up
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)  # a text is an error's
        raise
