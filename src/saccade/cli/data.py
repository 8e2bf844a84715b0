"""`saccade data`: look at, convert and check region features and captions on disk."""

from __future__ import annotations

from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.options import NumberType

app = typer.Typer(
    no_args_is_help=True,
    help="Look at, convert and check features and captions: stores, precomputed arrays, TSV, npz, HDF5, LMDB.",
)


class Format(str, Enum):
    store = "store"
    precomp = "precomp"
    tsv = "tsv"


@app.command()
def info(
    path: Annotated[
        Path,
        typer.Argument(help="A store, a precomputed folder, a .tsv, .npz files, HDF5, LMDB, a Karpathy .json, photos."),
    ],
) -> None:
    """Say what lies at PATH: its kind (found out by itself), counts, widths, regions, captions, size.

    Example: saccade data info data/f30k_precomp
    """
    from saccade.cli.photo_sets import photo_set_at, show_photo_set
    from saccade.data.formats.summary import summarise

    photo_set = photo_set_at(path, None)
    if photo_set is not None:
        show_photo_set(path, photo_set)
        return
    console = Console()
    for summary in summarise(path):
        table = Table(title=escape(summary.title), title_justify="left", show_header=False)
        for name, value in summary.rows:
            table.add_row(escape(name), escape(value))
        console.print(table)


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC", help="What to read: a store, a precomputed folder, a .tsv, .npz files, HDF5, LMDB."
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="What to write: a folder, or a .tsv file.")],
    to: Annotated[
        Format | None,
        typer.Option(
            help="The format to write: a store, which alone keeps everything, or a TSV where DST ends in .tsv."
        ),
    ] = None,
    dtype: Annotated[
        NumberType, typer.Option(help="float16 halves the size; a TSV is always float32.")
    ] = NumberType.float32,
    split: Annotated[
        list[str] | None, typer.Option(help="Take only this split; may be given several times. All, if not given.")
    ] = None,
    captions: Annotated[
        Path | None,
        typer.Option(help="Sentences for features that come without: a Karpathy .json or a captions .jsonl."),
    ] = None,
    sizes: Annotated[
        Path | None,
        typer.Option(help="Widths and heights, where boxes are in pixels: COCO's annotations .json, or a .tsv table."),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="The pictures' ids in the order of an HDF5 table that has none: .json or .txt.")
    ] = None,
    extractor: Annotated[str | None, typer.Option(help="What made the features; kept in the store's manifest.")] = None,
) -> None:
    """Write SRC again in another format, picture by picture, without loading it whole.

    A store that was cut off goes on where it stopped: give the same command again.

    Example: saccade data convert trainval_36.tsv features --dtype float16 --captions dataset_coco.json
    """
    from saccade.core.progress import one_by_one, progress_bar
    from saccade.data.formats.collection import open_collection
    from saccade.data.formats.convert import convert as write

    console = Console()
    form = to or (Format.tsv if target.suffix == ".tsv" else Format.store)
    collection = open_collection(source, tuple(split or ()), captions, sizes, ids)
    with progress_bar(f"writing {target}") as tell:
        count = write(
            collection, target, form.value, dtype.value, extractor, one_by_one(tell, len(collection.pictures))
        )
    already = len(collection.pictures) - count
    console.print(
        escape(f"{target}: {count:,} pictures written" + (f", {already:,} were there" if already > 0 else ""))
    )


@app.command()
def check(
    path: Annotated[
        Path,
        typer.Argument(help="A store, a precomputed folder, a .tsv, .npz files, HDF5, LMDB, a Karpathy .json, photos."),
    ],
    most: Annotated[int, typer.Option(help="Stop after so many problems.", min=1)] = 20,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="The photo data set that PATH should be: flickr8k, flickr30k, coco, coco_mini, visual_genome. Says "
            "what is missing and where to get it; without it the folder's files tell.",
        ),
    ] = None,
    photos: Annotated[
        bool, typer.Option("--photos", help="Open every photo of the data set too: about a minute for 10,000.")
    ] = False,
) -> None:
    """Read everything at PATH once: checksums, NaN, boxes, UTF-8, counts. Exit code 2 if something is wrong.

    Example: saccade data check features

    Example: saccade data check data/flickr8k --as flickr8k
    """
    from saccade.cli.faults import report_faults
    from saccade.cli.photo_sets import photo_set_at, show_photo_set
    from saccade.data.formats.check import problems

    photo_set = photo_set_at(path, as_)
    if photo_set is not None:
        show_photo_set(path, photo_set, most, photos)
        return
    console = Console()
    with console.status(escape(f"reading {path}")):
        found = list(islice(problems(path), most + 1))
    report_faults(console, path, found, most)
