"""`saccade extract`: from a folder of photos to region features, or of videos to frame features."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from saccade.cli.options import Device, NumberPrecision, NumberType, report_broken, report_passed_over, say
from saccade.core.errors import SaccadeError
from saccade.core.text import escaped

if TYPE_CHECKING:
    from saccade.features.extraction import Extraction


def extract(
    photos: list[Path],
    *,
    out: Path = Path("features"),
    regions: str | None = None,
    model: str | None = None,
    extractor: str | None = None,
    rate: float | None = None,
    frames: int | None = None,
    window: int | None = None,
    shots: bool = False,
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
    """Extract the region features of photos, with boxes and original sizes, or the frame features of videos, with
    times, into a feature store.

    Stopped, killed or out of disk: give the same command again and it goes on, to the same bytes. A picture that cannot
    be read is listed at the end and in broken.json in the store; the others are extracted, and the exit code is 2. A
    picture is known by its path inside the folder, with its ending: that is what caption files of Flickr8k, Flickr30k
    and COCO call it.

    Example: saccade extract photos/ -o features --regions grid --captions dataset_flickr8k.json

    Example: saccade extract photos/ -o features --model scan-flickr8k

    Example: saccade extract videos/ -o features --regions grid:dinov2-s@224/8 --rate 2
    """
    from saccade.core.interrupt import advise
    from saccade.core.progress import progress_bar
    from saccade.features.extraction import extract_photos_at, hold_videos

    sampled = {"rate": rate, "count": frames, "window": window, "shots": 1 if shots else None}
    given = {name: value for name, value in sampled.items() if value is not None}
    if model is not None:
        from saccade.tasks.predict import extractor_of

        if regions is not None:
            raise SaccadeError(f"--regions {regions} and --model {model} both say where regions come from: give one")
        if given:
            raise SaccadeError(
                f"--model {model} says how videos are looked at: leave out --rate, --frames, --window and --shots"
            )
        regions = extractor_of(model)
    elif given or hold_videos(photos):
        regions = video_extractor(regions or "grid", given)
    passed_over = Counter[str]()
    advise(f"the same command goes on with {out}")
    with progress_bar("extracting") as progress:
        done = extract_photos_at(
            photos,
            out,
            regions or "bottomup",
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
            passed_over=passed_over,
            progress=progress,
            waiting=lambda: say(f"another process is writing {out}: waiting for it", err=True),
        )
    what = "video" if done.store.manifest.videos else "picture"
    report_passed_over(passed_over, what)
    Console(soft_wrap=True).print(escaped(summary(done, out, f"{what}s")), markup=False, highlight=False)
    report_broken(done.broken, len(done.images) + len(done.broken), what)


def video_extractor(regions: str, options: dict[str, float | int]) -> str:
    """The name of what sees videos through an extractor of pictures, so often."""
    kind = regions.partition(":")[0]
    name = regions if kind in ("frames", "clips") else f"frames:{regions}"
    return ",".join([name, *(f"{key}={value:g}" for key, value in options.items())])


def summary(done: Extraction, out: Path, what: str = "pictures") -> str:
    """What happened: counts and rate."""
    from saccade.data.store.manifest import BROKEN

    rate = f" ({done.written / done.seconds:.1f} {what} a second)" if done.written else ""
    words = [f"{done.written:,} {what} in {done.seconds:.1f} s{rate}"]
    words += [f"{done.already:,} were there"] if done.already else []
    words += [f"{len(done.broken):,} broken (listed in {out / BROKEN})"] if done.broken else []
    return f"{out}: {', '.join(words)}"
