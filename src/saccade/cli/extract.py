"""`saccade extract`: from a folder of photos to region features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from saccade.cli.options import Device, NumberType

if TYPE_CHECKING:
    from saccade.features.extraction import Extraction

BROKEN_SHOWN = 3  # pictures named at the end; the file lists all


def extract(
    photos: Annotated[
        list[Path],
        typer.Argument(
            metavar="PHOTOS...",
            help="Folders (searched with the folders in them), picture files, or a .txt file with one path a line.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The feature store to write, or to go on with: a folder.")
    ] = Path("features"),
    regions: Annotated[
        str,
        typer.Option(
            "--regions",
            "-r",
            help="Where a picture's regions come from: bottomup (a detector: things and what they are like), grid "
            "(equal cells of a backbone's map; grid:efficientnet-lite2 for another), world (the toys of `saccade "
            "world`), detr:HUB/NAME (a detector of transformers), or a .json file with your own boxes.",
        ),
    ] = "bottomup",
    extractor: Annotated[
        str | None,
        typer.Option(
            help="Extractor applied to the boxes, when --regions is a file. [default: grid]", show_default=False
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures that go through the network at once.", min=1)] = 64,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that decode pictures ahead of the extractor. [default: one for each core]",
            min=1,
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    dtype: Annotated[NumberType, typer.Option(help="float16 takes half the room of float32.")] = NumberType.float16,
    captions: Annotated[
        Path | None,
        typer.Option(
            help="Sentences to keep beside the features, so that a model can be trained on them: captions.jsonl, a "
            "Karpathy dataset*.json, COCO's captions*.json, coco_mini's annotations.jsonl, or lines "
            "photo.jpg#0<TAB>sentence."
        ),
    ] = None,
    sizes: Annotated[
        Path | None,
        typer.Option(
            help="Sizes of the originals, where the files are made smaller: a table with the columns image, width and "
            "height (tab-separated, .gz too), or JSON with a list images as COCO has it."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many pictures, by name.", min=1)] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what an earlier run found broken.")] = False,
) -> None:
    """Extract the region features of photos, with boxes and original sizes, into a feature store.

    Stopped, killed or out of disk: give the same command again and it goes on, to the same bytes. Pictures that cannot
    be read are passed over and listed in broken.json in the store. A picture is known by its path inside the folder,
    with its ending: that is what caption files of Flickr8k, Flickr30k and COCO call it.

    Example: saccade extract photos/ -o features --regions grid --captions dataset_flickr8k.json
    """
    from saccade.core.progress import progress_bar
    from saccade.features.extraction import extract_photos_at

    console = Console()
    try:
        with progress_bar("extracting") as progress:
            done = extract_photos_at(
                photos,
                out,
                regions,
                extractor=extractor,
                device=device,
                captions=captions,
                sizes=sizes,
                limit=limit,
                batch_size=batch_size,
                workers=workers,
                dtype=dtype.value,
                retry=retry,
                progress=progress,
                waiting=lambda: typer.echo(f"another process is writing {out}: waiting for it", err=True),
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped: the same command goes on with {out}", err=True)
        raise
    for line in summary(done, out):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary(done: Extraction, out: Path) -> Iterator[str]:
    """What happened: counts and rate, then the first few broken pictures."""
    from saccade.data.store.manifest import BROKEN

    rate = f" ({done.written / done.seconds:.1f} pictures a second)" if done.written else ""
    words = [f"{done.written:,} pictures in {done.seconds:.1f} s{rate}"]
    words += [f"{done.already:,} were there"] if done.already else []
    words += [f"{len(done.broken):,} broken (listed in {out / BROKEN})"] if done.broken else []
    yield f"{out}: {', '.join(words)}"
    yield from (f"  {one.reason}" for one in done.broken[:BROKEN_SHOWN])
    if len(done.broken) > BROKEN_SHOWN:
        yield f"  and {len(done.broken) - BROKEN_SHOWN:,} more"
