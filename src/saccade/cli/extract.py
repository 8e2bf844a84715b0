"""`saccade extract`: from a folder of photos to region features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from saccade.cli.options import Device, NumberType
from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.features.extraction import Extraction

SHOWN = 3  # broken pictures named at the end; the file lists all


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
        typer.Option(help="Who looks at your own boxes, when --regions is a file. [default: grid]", show_default=False),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures seen at once.", min=1)] = 32,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Threads that open pictures ahead of the extractor. [default: one for each core, 2 to 8]",
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
    """See photos and keep their region features, with boxes and original sizes, in a feature store.

    Stopped, killed or out of disk: give the same command again and it goes on, to the same bytes. Pictures that cannot
    be read are passed over and listed in broken.json in the store. A picture is known by its path inside the folder,
    with its ending: that is what caption files of Flickr8k, Flickr30k and COCO call it.

    Example: saccade extract photos/ -o features --regions grid --captions dataset_flickr8k.json
    """
    from saccade.core.progress import progress_bar
    from saccade.data.formats.captions import captions_of
    from saccade.data.formats.picture import read_sizes
    from saccade.data.text.boxes import GivenBoxes, read_boxes
    from saccade.data.text.captions import CAPTIONS, write_captions
    from saccade.features.extraction import extract as see
    from saccade.features.listing import list_pictures
    from saccade.vision.extractors import KINDS, load_extractor

    console = Console()
    pictures = list_pictures(photos, limit)
    ids = [id for id, _ in pictures]
    given = GivenBoxes({})
    own_boxes = regions.lower().endswith((".json", ".json.gz")) and regions.partition(":")[0] not in KINDS
    if extractor is not None and not own_boxes:
        raise SaccadeError(
            f"--extractor {extractor} goes with a file of boxes; without one, --regions {extractor} is what to say"
        )
    if own_boxes:
        given = read_boxes(Path(regions)).of(ids, Path(regions))
    known = {**(given.sizes or {}), **({} if sizes is None else read_sizes(sizes))}
    original = {id: size for id in ids if (size := known.get(id) or known.get(Path(id).name)) is not None}
    sentences = () if captions is None else captions_of(captions, ids)  # told before an hour of seeing
    looking = load_extractor((extractor or "grid") if own_boxes else regions, device)
    try:
        with progress_bar("seeing") as progress:
            done = see(
                pictures,
                looking,
                out,
                boxes=given.boxes if own_boxes else None,
                unit=given.unit,
                sizes=original,
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
    if sentences:
        write_captions(out / CAPTIONS, [c for c in sentences if c.image in done.store.index])
    for line in summary(done, out):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def summary(done: Extraction, out: Path) -> Iterator[str]:
    """What happened: counts and rate, then the first few broken pictures."""
    from saccade.data.store.broken import BROKEN

    rate = f" ({done.written / done.seconds:.1f} pictures a second)" if done.written else ""
    words = [f"{done.written:,} pictures in {done.seconds:.1f} s{rate}"]
    words += [f"{done.already:,} were there"] if done.already else []
    words += [f"{len(done.broken):,} broken (listed in {out / BROKEN})"] if done.broken else []
    yield f"{out}: {', '.join(words)}"
    yield from (f"  {one.reason}" for one in done.broken[:SHOWN])
    if len(done.broken) > SHOWN:
        yield f"  and {len(done.broken) - SHOWN:,} more"
