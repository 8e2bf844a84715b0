"""`saccade eval`: recall@K both ways, for one model or several averaged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.device import Device
from saccade.errors import SaccadeError
from saccade.metrics import CUTOFFS


def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Run or model folders, and KEY=VALUE words.")],
    split: Annotated[str | None, typer.Option(help="Which split; the run's test split if not given.")] = None,
    folds: Annotated[int, typer.Option(help="Cut the pictures into so many folds and average (COCO 1K: 5).")] = 1,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Also average the models' similarities.")] = False,
    device: Device = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    """Recall@1, 5, 10 from pictures to texts and from texts to pictures, beside chance.

    The data are those of the first run unless KEY=VALUE words say otherwise (data=precomp root=f30k_precomp).

    Example: saccade eval runs/scan runs/vse --split hard
    """
    from dataclasses import replace

    from saccade.config import override
    from saccade.data import open_split
    from saccade.files import write_json
    from saccade.metrics import chance, recall
    from saccade.models import Matcher, load_model
    from saccade.tasks import ensemble_of, similarity_table
    from saccade.training.run import CONFIG, RunConfig, load_run_config

    folders, words = [m for m in models if "=" not in m], [m for m in models if "=" in m]
    for word in [w for w in words if w.startswith("split=")]:  # as good as --split
        words.remove(word)
        split = word.removeprefix("split=")
    if not folders:
        raise SaccadeError("name at least one run or model folder to evaluate")
    run = load_run_config(folders[0]) if (Path(folders[0]) / CONFIG).exists() else RunConfig()
    config = override(run, words).data
    rows: dict[str, dict[str, float]] = {}
    tables = []
    for folder in folders:
        model = load_model(folder, Matcher).to(device)
        sees = model.sight.size if model.sight is not None else None
        own = replace(config, eye=model.eye or config.eye)  # the model says what saw the photos it learned from
        data = open_split(own, split or config.test_split, sees)
        if sees is None and (known := getattr(model.config, "region_dim", data.regions.dim)) != data.regions.dim:
            raise SaccadeError(f"{folder} reads features of {known} numbers, {data.name} has {data.regions.dim}")
        rows.setdefault("chance", chance(data.image_of_text, len(data.images)))
        tables.append(similarity_table(model, data))
        rows[folder] = recall(tables[-1], data.image_of_text, folds)
    if ensemble and len(tables) > 1:
        rows["ensemble"] = recall(ensemble_of(tables), data.image_of_text, folds)
    Console().print(_table(f"{data.name}/{data.split}: {len(data.images)} pictures, {len(data.texts)} texts", rows))
    if json_file:
        write_json(json_file, {"data": data.name, "split": data.split, "folds": folds, "results": rows})


def _table(title: str, rows: dict[str, dict[str, float]]) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("model", overflow="fold")
    headings = {"i2t": "picture→text", "t2i": "text→picture"}
    for heading in headings.values():
        for k in CUTOFFS:
            table.add_column(f"{heading}\nR@{k}" if k == CUTOFFS[0] else f"\nR@{k}", justify="right", no_wrap=True)
    table.add_column("\nrsum", justify="right")
    for name, figures in rows.items():
        recalls = [figures[f"{way}_r{k}"] for way in headings for k in CUTOFFS]
        table.add_row(escape(name), *(f"{value:.1f}" for value in (*recalls, figures["rsum"])))
    return table
