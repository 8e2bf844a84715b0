"""`saccade eval`: recall@K both ways, for one model or several averaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.data_words import run_data, sort_words, with_words
from saccade.cli.device import Device
from saccade.errors import SaccadeError
from saccade.metrics import CUTOFFS, WAYS

RECALLS = [f"{way}_r{k}" for way in WAYS for k in CUTOFFS]


def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Run or model folders, and KEY=VALUE words.")],
    split: Annotated[str | None, typer.Option(help="Which split; the run's test split if not given.")] = None,
    folds: Annotated[int, typer.Option(help="Cut the pictures into so many folds and average (COCO 1K: 5).")] = 1,
    ensemble: Annotated[
        bool,
        typer.Option("--ensemble", help="Also average the models' similarities, each brought to the same spread."),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Average the similarities as they are, as VSRN's and GSMN's papers do."),
    ] = False,
    weights: Annotated[
        str | None, typer.Option(metavar="2,1", help="How much each model counts in the average; equally if not given.")
    ] = None,
    device: Device = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    """Recall@1, 5, 10 from pictures to texts and from texts to pictures, beside chance.

    The data are those of the first run unless KEY=VALUE words say otherwise (data=precomp root=f30k_precomp). Models
    may be of different systems and eyes. --raw and --weights are ways of averaging, and imply --ensemble.

    Example: saccade eval runs/scan runs/vse --split hard --ensemble
    """
    from saccade.files import write_json
    from saccade.metrics import chance, check_folds, recall
    from saccade.models import Matcher, find_model, load_model
    from saccade.tasks import SplitForModels, ensemble_of, similarity_table

    folders, words, split = sort_words(models, split)
    if not folders:
        raise SaccadeError("name at least one run or model folder to evaluate")
    ensemble = ensemble or raw or weights is not None
    if ensemble and len(folders) == 1:
        raise SaccadeError(f"an ensemble needs two models or more, and {folders[0]} is the only one given")
    shares = _weights(weights, len(folders)) if weights is not None else None
    for folder in folders:  # before the first is evaluated, which may take a while
        find_model(folder, Matcher)
    config = with_words(run_data(folders[0]), words)
    seen = SplitForModels(config, split or config.test_split)
    rows: dict[str, dict[str, float]] = {}
    tables = []
    for folder in folders:
        model = load_model(folder, Matcher).to(device)
        data = seen.seen_by(model, folder)
        check_folds(len(data.images), folds)
        rows.setdefault("chance", chance(data.image_of_text, len(data.images), folds))
        tables.append(similarity_table(model, data))
        rows[folder] = recall(tables[-1], data.image_of_text, folds)
    if ensemble:
        rows["ensemble"] = recall(ensemble_of(tables, shares, raw), data.image_of_text, folds)
    Console().print(_table(f"{data.name}/{data.split}: {len(data.images)} pictures, {len(data.texts)} texts", rows))
    if json_file:
        write_json(json_file, {"data": data.name, "split": data.split, "folds": folds, "results": rows})


def _weights(text: str, models: int) -> list[float]:
    from saccade.tasks import check_weights

    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SaccadeError(f"--weights {text}: numbers with commas between them were expected, such as 2,1") from error
    check_weights(weights, models)
    return weights


def _table(title: str, rows: Mapping[str, Mapping[str, float]]) -> Table:
    table = recall_table(title)
    for name, figures in rows.items():
        table.add_row(escape(name), *(f"{figures[key]:.1f}" for key in ("rsum", *RECALLS)))
    return table


def recall_table(title: str) -> Table:
    """The headings: a name, rsum, the six recalls; narrow, so that names have room in a terminal."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("\n\nmodel", overflow="fold")
    table.add_column("\n\nrsum", justify="right", no_wrap=True)
    for way in WAYS.values():
        first = way.replace("→", "\n→")
        for k in CUTOFFS:
            table.add_column(f"{first}\nR@{k}" if k == CUTOFFS[0] else f"\n\nR@{k}", justify="right", no_wrap=True)
    return table
