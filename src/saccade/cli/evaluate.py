"""`saccade eval`: how good trained models are, each by the measures of its task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape

from saccade.cli.data_words import run_data, sort_words, with_words
from saccade.cli.options import Device
from saccade.cli.tables import figure_table
from saccade.core.errors import SaccadeError
from saccade.tasks import eval_options, find_task, task_names

if TYPE_CHECKING:
    from saccade.tasks.base import TaskSpec


def with_task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every task, between its own, and in its help what each task's EvalOptions say."""
    types = get_type_hints(command, include_extras=True)
    own = [p.replace(annotation=types[p.name]) for p in inspect.signature(command).parameters.values()]
    added = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=option.default,
            annotation=get_type_hints(options, include_extras=True)[option.name],
        )
        for options in eval_options()
        for option in fields(options)
    ]
    said = "\n\n".join(inspect.getdoc(options) or "" for options in eval_options())
    command.__doc__ = (inspect.getdoc(command) or "").replace("{tasks}", said)
    command.__signature__ = inspect.Signature([*own[:2], *added, *own[2:-1]])  # type: ignore[attr-defined]
    return command


@with_task_options
def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Run or model folders, and KEY=VALUE words.")],
    split: Annotated[str | None, typer.Option(help="Which split; the run's test split if not given.")] = None,
    device: Device = "auto",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
    **given: Any,
) -> None:
    """How good trained models are, each by the measures of its task.

    {tasks}

    The data are those of the first run unless KEY=VALUE words say otherwise (data=precomp root=f30k_precomp). Models
    may be of different systems and extractors.

    Example: saccade eval runs/scan runs/vse --split hard --ensemble

    Example: saccade eval runs/updown runs/adaptive --beam 5 --captions said.json
    """
    from saccade.core.files import check_writable, write_json
    from saccade.tasks.evaluator import EvalRequest
    from saccade.training.run import CONFIG, load_run_config

    folders, words, split = sort_words(models, split)
    if not folders:
        raise SaccadeError("name at least one run or model folder to evaluate")
    spec = _task(folders)
    options = _options(spec, given, folders[0])
    config = with_words(run_data(folders[0]), words)
    settings = {folder: load_run_config(folder).task for folder in folders if (Path(folder) / CONFIG).exists()}
    check_writable(json_file)
    request = EvalRequest(tuple(folders), config, split or config.test_split, device, options, settings)
    found = spec.evaluator.compare(request)
    table = figure_table(found.title, found.headings)
    for row in found.rows:
        table.add_section() if row is None else table.add_row(*map(escape, row))
    Console().print(table)
    for note in found.notes:
        typer.echo(note)
    if json_file is not None:
        write_json(json_file, found.figures)


def _task(folders: Sequence[str]) -> TaskSpec[Any, Any]:
    """What all these models are for. Raises: SaccadeError, before the first is evaluated, if they differ in that."""
    from saccade.models import Model, find_model

    kinds: list[type[Model]] = [find_model(folder)[1] for folder in folders]
    specs = [find_task(kind.task) for kind in kinds]
    for folder, spec in zip(folders, specs, strict=True):
        if spec.evaluator is not specs[0].evaluator:
            raise SaccadeError(
                f"{folders[0]} is a {specs[0].noun} and {folder} a {spec.noun}: what they do has no measure in common, "
                "evaluate them one after the other"
            )
    return specs[0]


def _options(spec: TaskSpec[Any, Any], given: Mapping[str, Any], folder: str) -> Any:
    """What was asked of this task. Raises: SaccadeError if something was asked that only others have."""
    for options in eval_options():
        asked = next((o.name for o in fields(options) if given.get(o.name, o.default) != o.default), None)
        if asked is not None and options is not spec.options:
            other = next(one.noun for one in map(find_task, task_names()) if one.options is options)
            raise SaccadeError(f"--{asked.replace('_', '-')} is for {other}s, and {folder} is a {spec.noun}")
    return spec.options(**{o.name: given.get(o.name, o.default) for o in fields(spec.options)})
