"""What `saccade data info` and `check` say of a photo data set: its parts, its splits, its faults, its source."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from saccade.data.photo_check import SplitCounts, broken_photos, parts_of, split_counts
from saccade.data.requirements import PhotoDataSet, find_data_set, recognise


def photo_set_at(path: Path, name: str | None) -> PhotoDataSet | None:
    """The data set named, else the one that lies at `path`; None for feature files."""
    from saccade.data.precomp import precomp_splits

    if name is not None:
        return find_data_set(name)
    if not path.is_dir() or (path / "manifest.json").exists() or precomp_splits(path):
        return None
    return recognise(path)


def show_photo_set(path: Path, data_set: PhotoDataSet, most: int = 20, photos: bool = False) -> None:
    """Tables of parts and splits, then the faults; exit code 2 if there is one."""
    console = Console()
    table = Table(title=escape(f"{path} as {data_set.title}"), title_justify="left")
    for heading in ("part", "state", "holds"):
        table.add_column(heading, overflow="fold")
    for row in parts_of(data_set, path):
        table.add_row(*map(escape, row))
    console.print(table)
    console.print(escape(f"from {data_set.home}; {data_set.terms}"), soft_wrap=True)
    faults: list[str] = []
    with console.status(escape(f"reading {path}")):
        counts = list(split_counts(data_set, path, faults))
    if counts:
        console.print(_split_table(counts))
    if photos and not faults:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("opening photos", total=sum(len(split.paths) for split in counts))
            faults += islice(broken_photos(counts, lambda: bar.advance(task)), most + 1)
    for fault in faults[:most]:
        console.print(escape(fault), soft_wrap=True)
    if faults:
        count = f"more than {most}" if len(faults) > most else str(len(faults))
        console.print(escape(f"{path}: {count} problem{'s' if len(faults) > 1 else ''}"))
        raise typer.Exit(2)
    console.print(escape(f"{path}: no problems"))


def _split_table(counts: list[SplitCounts]) -> Table:
    table = Table("split", "photos", "captions", "boxes", "")
    for split in counts:
        boxes = "–" if split.boxes is None else f"{split.boxes:,}"
        numbers = ("–",) * 3 if split.note else (f"{split.photos:,}", f"{split.captions:,}", boxes)
        table.add_row(split.split, *numbers, escape(split.note))
    return table
