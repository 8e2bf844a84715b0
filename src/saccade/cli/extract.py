"""`saccade extract`: from a folder of photos to region features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from saccade.cli.options import Device, NumberPrecision, NumberType, say
from saccade.core.text import escaped

if TYPE_CHECKING:
    from saccade.features.extraction import Extraction

BROKEN_SHOWN = 3  # pictures named at the end; the file lists all


def extract(
    photos: list[Path],
    *,
    out: Path = Path("features"),
    regions: str = "bottomup",
    extractor: str | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    device: Device = "auto",
    precision: NumberPrecision = NumberPrecision.fp32,
    dtype: NumberType = NumberType.float16,
    captions: Path | None = None,
    sizes: Path | None = None,
    limit: int | None = None,
    retry: bool = False,
) -> None:
    """Extract the region features of photos, with boxes and original sizes, into a feature store.

    Stopped, killed or out of disk: give the same command again and it goes on, to the same bytes. Pictures that cannot
    be read are passed over and listed in broken.json in the store. A picture is known by its path inside the folder,
    with its ending: that is what caption files of Flickr8k, Flickr30k and COCO call it.

    Example: saccade extract photos/ -o features --regions grid --captions dataset_flickr8k.json
    """
    from saccade.core.interrupt import advise
    from saccade.core.progress import progress_bar
    from saccade.features.extraction import extract_photos_at

    console = Console()
    advise(f"the same command goes on with {out}")
    with progress_bar("extracting") as progress:
        done = extract_photos_at(
            photos,
            out,
            regions,
            extractor=extractor,
            device=device,
            precision=precision.value,
            captions=captions,
            sizes=sizes,
            limit=limit or None,
            batch_size=batch_size,
            workers=workers,
            dtype=dtype.value,
            retry=retry,
            progress=progress,
            waiting=lambda: say(f"another process is writing {out}: waiting for it", err=True),
        )
    for line in summary(done, out):
        console.print(escaped(line), markup=False, highlight=False, soft_wrap=True)


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
