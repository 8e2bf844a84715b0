"""`saccade score`: pictures against sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.options import Device, ModelOption, default_model, report_unknown
from saccade.core.errors import SaccadeError


def score(
    pictures: Annotated[list[Path], typer.Argument(help="Picture files, or folders of them.")],
    text: Annotated[list[str], typer.Option("--text", "-t", help="A sentence; may be given several times.")],
    model: ModelOption = None,
    top: Annotated[int, typer.Option(help="Show at most so many pictures, best for the first sentence first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Device = "auto",
) -> None:
    """How well each picture fits each sentence.

    Example: saccade score photos/ -t "a red cube left of a blue ball" --model runs/scan
    """
    from saccade.tasks.matching.predict import PictureMatcher
    from saccade.tasks.predict import load
    from saccade.vision.pictures import find_pictures

    files = [f for p in pictures for f in (find_pictures(p) if p.is_dir() else [p])]
    if not text:
        raise SaccadeError('give at least one sentence with --text "…"')
    matcher = load(model or default_model(), device, kind=PictureMatcher)
    report_unknown(matcher.model.vocabulary, text)
    scores = matcher.score(files, text)
    order = scores[:, 0].argsort()[::-1][:top]
    if as_json:
        typer.echo(json.dumps([{"picture": str(files[i]), "scores": scores[i].tolist()} for i in order]))
        return
    table = Table()
    table.add_column("picture", overflow="fold")
    for sentence in text:
        table.add_column(escape(sentence), justify="right", overflow="fold")
    for i in order:
        table.add_row(escape(str(files[i])), *(f"{s:.3f}" for s in scores[i]))
    Console().print(table)
