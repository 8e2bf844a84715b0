"""`saccade models`: the systems there are, and the trained models that come with the package.

All is read from files, so that the list appears at once: importing the models would import PyTorch.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.core.files import read_json

PACKAGE = Path(__file__).parents[1]


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
    """What `@register(NAME, task=…, title=…, venue=…)` says in each file, read without importing a model."""
    recipes = [path.stem for path in (PACKAGE / "recipes").glob("*.yaml")]
    tables = (path.read_text(encoding="utf-8") for path in (PACKAGE / "interop" / "importers").glob("*.py"))
    importers = {name for text in tables for name in re.findall(r'^    system="(\w+)"', text, re.MULTILINE)}
    return sorted(
        (
            {
                "name": name,
                **said,
                "recipes": sorted(recipe.split("-", 1)[1] for recipe in recipes if recipe.startswith(f"{name}-")),
                "import": name in importers,
            }
            for name, said in _registered()
        ),
        key=lambda row: (row["task"], row["name"]),
    )


def _registered() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "\n@register(" not in text:
            continue
        for node in ast.parse(text).body:
            for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "register":
                    said = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
                    yield ast.literal_eval(call.args[0]), said


def _trained() -> list[dict[str, Any]]:
    task_of = {name: said["task"] for name, said in _registered()}
    rows = []
    for folder in sorted(path.parent for path in (PACKAGE / "models" / "weights").glob("*/config.json")):
        described = read_json(folder / "config.json")
        backbone = described.get("backbone")
        rows.append(
            {
                "name": folder.name,
                "system": described["model"],
                "task": task_of[described["model"]],
                "extractor": f"{backbone}, its own" if backbone is not None else described["extractor"],
                "parameters": _parameter_count(folder / "model.safetensors"),
                "words": len(read_json(folder / "vocabulary.json")["words"]),
                "bytes": sum(file.stat().st_size for file in folder.iterdir()),
            }
        )
    return rows


def _parameter_count(path: Path) -> int:
    """Numbers in a safetensors file by its header: a length in 8 bytes, then names with shapes as JSON."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    kept = (name for name in header if name != "__metadata__" and not name.endswith("::scale"))
    return sum(prod(header[name]["shape"]) for name in kept)
