"""`saccade data`: look at, convert and check region features and captions on disk."""

from __future__ import annotations

from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli import described
from saccade.cli.options import NumberType, escape

if TYPE_CHECKING:
    from saccade.data.registry import DataSet
    from saccade.data.survey import SplitCounts

app = typer.Typer(
    no_args_is_help=True,
    help="Look at, convert and check features and captions: stores, precomputed arrays, TSV, npz, HDF5, LMDB.",
)


class Format(str, Enum):
    store = "store"
    precomp = "precomp"
    tsv = "tsv"


@app.command()
@described
def info(path: Path) -> None:
    """Say what lies at PATH: its kind (found out by itself), counts, widths, regions, captions, size.

    Example: saccade data info data/f30k_precomp
    """
    from saccade.data.registry import recognise
    from saccade.data.survey import summarise

    found = recognise(path) if path.is_dir() else None
    if found is not None and found.kind == "photos":
        _show_photos(path, found)
        return
    console = Console()
    for title, rows in summarise(path):
        table = Table(title=escape(title), title_justify="left", show_header=False)
        for name, value in rows:
            table.add_row(escape(name), escape(value))
        console.print(table)


@app.command()
@described
def convert(
    source: Path,
    target: Path,
    *,
    to: Format | None = None,
    dtype: NumberType = NumberType.float32,
    split: list[str] | None = None,
    captions: Path | None = None,
    sizes: Path | None = None,
    ids: Path | None = None,
    extractor: str | None = None,
) -> None:
    """Write SRC again in another format, picture by picture, without loading it whole.

    A store that was cut off goes on where it stopped: give the same command again.

    Example: saccade data convert trainval_36.tsv features --dtype float16 --captions dataset_coco.json
    """
    from saccade.core.interrupt import advise
    from saccade.core.progress import one_by_one, progress_bar
    from saccade.data.formats.collection import convert as write
    from saccade.data.formats.collection import open_collection

    console = Console()
    form = to or (Format.tsv if target.suffix == ".tsv" else Format.store)
    collection = open_collection(source, tuple(split or ()), captions, sizes, ids)
    if form is Format.store:
        advise(f"the same command goes on with {target}")
    with progress_bar(f"writing {target}") as progress:
        count = write(
            collection, target, form.value, dtype.value, extractor, one_by_one(progress, len(collection.pictures))
        )
    already = len(collection.pictures) - count
    console.print(
        escape(f"{target}: {count:,} pictures written" + (f", {already:,} were there" if already > 0 else ""))
    )


@app.command()
@described
def check(path: Path, *, most: int = 20, as_: str | None = None, photos: bool = False) -> None:
    """Read everything at PATH once: checksums, NaN, boxes, UTF-8, counts. Exit code 2 if something is wrong.

    Example: saccade data check features

    Example: saccade data check data/flickr8k --as flickr8k
    """
    from saccade.data.registry import find_photos, recognise
    from saccade.data.survey import problems

    named = None if as_ is None else find_photos(as_)
    found = named or (recognise(path) if path.is_dir() else None)
    if found is not None and found.kind == "photos":
        _show_photos(path, found, most, photos)
        return
    console = Console()
    with console.status(escape(f"reading {path}")):
        faults = list(islice(problems(path), most + 1 if most else None))
    _report_faults(console, path, faults, most)


def _show_photos(path: Path, data_set: DataSet, most: int = 20, photos: bool = False) -> None:
    """Tables of parts and splits, then the faults; exit code 2 if there is one."""
    from saccade.core.progress import one_by_one, progress_bar
    from saccade.data.survey import parts_of, split_counts
    from saccade.features.extraction import unreadable_photos

    console = Console()
    table = Table(title=escape(f"{path} as {data_set.title}"), title_justify="left")
    for heading in ("part", "state", "holds"):
        table.add_column(heading, overflow="fold")
    for row in parts_of(data_set, path):
        table.add_row(*map(escape, row))
    console.print(table)
    console.print(escape(f"from {data_set.home}; {data_set.licence}"), soft_wrap=True)
    faults: list[str] = []
    with console.status(escape(f"reading {path}")):
        counts = list(split_counts(data_set, path, faults))
    if counts:
        console.print(_split_table(counts))
    if photos and not faults:
        paths = [path for split in counts for path in split.paths]
        with progress_bar("opening photos") as progress:
            faults += islice(unreadable_photos(paths, one_by_one(progress, len(paths))), most + 1 if most else None)
    _report_faults(console, path, faults, most)


def _split_table(counts: list[SplitCounts]) -> Table:
    table = Table(
        "split", "videos" if any(split.videos for split in counts) else "photos", "captions", "boxes", "questions", ""
    )
    for split in counts:
        boxes, questions = ("–" if n is None else f"{n:,}" for n in (split.boxes, split.questions))
        captions = f"{split.captions:,}" if split.questions is None else "–"
        numbers = ("–",) * 4 if split.note else (f"{split.photos:,}", captions, boxes, questions)
        table.add_row(split.split, *numbers, escape(split.note))
    return table


def _report_faults(console: Console, path: Path, faults: list[str], most: int) -> None:
    """One fault a line, at most `most` of them (0: all), and how many there are; exit code 2 if there is one."""
    for fault in faults[: most or None]:
        console.print(escape(fault), soft_wrap=True)
    if faults:
        count = f"more than {most}" if 0 < most < len(faults) else str(len(faults))
        console.print(escape(f"{path}: {count} problem{'s' if len(faults) > 1 else ''}"))
        raise typer.Exit(2)
    console.print(escape(f"{path}: no problems"))
