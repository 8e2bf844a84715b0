"""`saccade models`: the systems there are, and the trained models that come with the package."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the systems (task, paper, recipes, whether official checkpoints can be imported) and the trained models.

    A system is a name for `saccade train`; a trained model is one for `--model`, `saccade eval` and `saccade.load`.

    Example: saccade models
    """
    systems, trained = _systems(), _trained()
    if as_json:
        typer.echo(json.dumps({"systems": systems, "trained": trained}, indent=2, ensure_ascii=False))
        return
    table = Table(title="Systems, for `saccade train NAME data=…`", title_justify="left")
    for heading in ("name", "task", "paper", "recipes for", "import"):
        table.add_column(heading)
    for row in systems:
        paper = f"{row['title']} ({row['venue']})"
        table.add_row(
            row["name"], row["task"], escape(paper), ", ".join(row["recipes"]), "yes" if row["import"] else ""
        )
    console = Console()
    console.print(table)
    table = Table(title="Trained models that come with the package, for --model NAME", title_justify="left")
    for heading in ("name", "system", "sees with", "parameters", "words", "MB"):
        table.add_column(heading, justify="right" if heading in ("parameters", "words", "MB") else "left")
    for row in trained:
        sizes = (f"{row['parameters']:,}", f"{row['words']:,}", f"{row['bytes'] / 1e6:.1f}")
        table.add_row(row["name"], row["system"], escape(row["extractor"] or "–"), *sizes)
    console.print(table)


def _systems() -> list[dict[str, Any]]:
    from saccade.interop import IMPORTERS
    from saccade.models import entries
    from saccade.training.run import recipe_data

    return [
        {
            "name": entry.name,
            "task": entry.task,
            "title": entry.title,
            "venue": entry.venue,
            "recipes": recipe_data(entry.name),
            "import": entry.name in IMPORTERS,
        }
        for entry in entries()
    ]


def _trained() -> list[dict[str, Any]]:
    from saccade.models import Model, find_model, load_model, shipped_models

    rows = []
    for name in shipped_models():
        model: Model = load_model(name)
        rows.append(
            {
                "name": name,
                "system": model.name,
                "task": model.task,
                "extractor": f"{model.backbone.name}, its own"
                if model.backbone is not None
                else model.extractor,
                "parameters": model.parameter_count(),
                "words": len(model.vocabulary),
                "bytes": sum(file.stat().st_size for file in find_model(name)[0].iterdir()),
            }
        )
    return rows
