"""What lies at a path, read once: counts and widths, the parts of a photo data set, and everything that is wrong.

`summarise` and `problems` take feature files and captions; `parts_of` and `split_counts` a folder of photos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import NoCaptions
from saccade.data.datasets.photos.karpathy import read_karpathy
from saccade.data.formats.arrays import UnknownSize
from saccade.data.formats.collection import ARRAYS, open_arrays, what_lies_at
from saccade.data.formats.precomp import PrecompImages, open_precomp, precomp_splits
from saccade.data.formats.tsv import BottomUpTsv, parse_line
from saccade.data.records import CaptionedImages, CaptionedPhotos, CaptionedVideos, RegionSource
from saccade.data.registry import Annotation, DataSet, NoSplit, imported
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.manifest import CAPTIONS

KARPATHY_SPLITS = ("train", "restval", "val", "test")
PART_FILES_SHOWN = 3  # files that a part names; the others are counted


Summary = tuple[str, list[tuple[str, str]]]  # a title, and rows of (name, value)


def summarise(path: Path) -> list[Summary]:
    """A table per collection: one, or one per split of a precomputed folder."""
    row = what_lies_at(path)
    if row.name == "precomp":
        splits = precomp_splits(path)
        return [(f"{path}: precomputed, split {split}", _precomp_summary(path, split)) for split in splits]
    tables = {"store": _store_summary, "tsv": _tsv_summary, "karpathy": _karpathy_summary}
    return [(f"{path}: {row.title}", tables.get(row.name, _arrays_summary)(path))]


def problems(path: Path) -> Iterator[str]:
    """One text for each fault at `path`; nothing if all is well."""
    checks: dict[str, Callable[[Path], Iterator[str]]] = {
        "store": _store_problems,
        "precomp": _precomp_problems,
        "tsv": _tsv_problems,
        "karpathy": _karpathy_problems,
        **dict.fromkeys(ARRAYS, lambda place: _unreadable(open_arrays(place))),
    }
    kind = what_lies_at(path).name
    try:
        yield from checks[kind](path)
    except SaccadeError as error:
        yield str(error)


@dataclass(frozen=True)
class SplitCounts:
    """What one split holds; a note where it cannot be opened and that is no fault."""

    split: str
    photos: int = 0
    captions: int = 0
    boxes: int | None = None
    questions: int | None = None
    videos: bool = False  # they are no photos
    note: str = ""
    paths: tuple[Path, ...] = ()


def parts_of(data_set: DataSet, folder: Path) -> Iterator[tuple[str, str, str]]:
    """(name, "here" or "missing" or "not here", what it holds) of each part of the layout that fits best."""
    for part in data_set.layout_at(folder):
        there = part.found(folder)
        if there:
            names = [str(p.relative_to(folder)) + ("/" if p.is_dir() else "") for p in there[:PART_FILES_SHOWN]]
            more = [f"{len(there) - PART_FILES_SHOWN:,} more"] if len(there) > PART_FILES_SHOWN else []
            yield ", ".join([*names, *more]), "here", part.holds
        else:
            where = part.home or data_set.home
            yield part.names[0], "missing" if part.needed else "not here", f"{part.holds}; from {where}"


def split_counts(data_set: DataSet, folder: Path, faults: list[str]) -> Iterator[SplitCounts]:
    """Each split opened once; what its readers refuse is put into `faults`."""
    faults += data_set.missing(folder)
    if faults:
        return
    splits: dict[Annotation, tuple[str, ...]] = imported(data_set.splits)(folder)
    for split in dict.fromkeys(name for names in splits.values() for name in names):

        def read(annotation: Annotation, optional: bool, split: str = split) -> Any:
            """None where the folder, or an optional split of it, has no such annotations: that is no fault."""
            if annotation not in splits:
                return None
            try:
                return data_set.reader(annotation)(split, folder)
            except NoSplit:
                if optional:
                    return None
                raise

        try:
            boxed = read("boxes", optional=True)
            asked = read("questions", optional=boxed is not None)
            if asked is None and "captions" not in splits:
                asked = read("referring", optional=True)
            moments = read("moments", optional=False)
            known = asked or moments
            photos = known.pictures if known else read("captions", optional=boxed is not None)
        except NoCaptions as error:
            yield SplitCounts(split, note=str(error))
        except SaccadeError as error:
            faults.append(str(error))
        else:
            yield SplitCounts(
                split,
                photos=_count(photos) if photos else len(boxed or ()),
                captions=len(photos.texts) if photos and not asked else 0,
                boxes=None if boxed is None else sum(len(picture.names) for picture in boxed),
                questions=len(asked.texts) if asked else None,
                videos=isinstance(photos, CaptionedImages | CaptionedVideos),
                paths=_photo_files(photos) if photos else tuple(picture.path for picture in boxed or ()),
            )


def _count(pictures: CaptionedPhotos | CaptionedImages) -> int:
    return len(pictures.images) if isinstance(pictures, CaptionedImages) else len(pictures.paths)


def _photo_files(pictures: CaptionedPhotos | CaptionedImages) -> tuple[Path, ...]:
    return () if isinstance(pictures, CaptionedImages | CaptionedVideos) else pictures.paths


def _store_summary(path: Path) -> list[tuple[str, str]]:
    store = FeatureStore.open(path)
    captions = store.captions()
    splits = Counter(c.split or "(none)" for c in captions)
    files = [path / s.file for s in store.manifest.shards]
    videos = store.manifest.videos
    what, parts = ("video", "frames") if videos else ("picture", "regions")
    rows = [
        (f"{what}s", f"{len(store):,}"),
        (f"{parts} a {what}", _spread(store.region_counts())),
        *([("seconds in all", f"{sum(video.seconds or 0 for video in store):,.1f}")] if videos else []),
        ("feature width", f"{store.dim:,}"),
        ("number type", store.dtype),
        ("extractor", store.extractor or "not said"),
        (f"captions a {what}", _spread(Counter(c.image for c in captions).values())),
        ("splits", _splits(splits, "captions")),
        ("shards", f"{len(files):,}"),
        ("size", _bytes(sum(f.stat().st_size for f in files if f.exists()))),
    ]
    return rows + [(f"metadata: {key}", str(value)) for key, value in store.metadata.items()]


def _precomp_summary(path: Path, split: str) -> list[tuple[str, str]]:
    data = open_precomp(split, path)
    images = data.images
    assert isinstance(images, PrecompImages)
    return [
        ("pictures", f"{len(images):,}" + (f" (each stored {images.step} times)" if images.step > 1 else "")),
        ("regions a picture", f"{images.array.shape[1]}"),
        ("feature width", f"{images.dim:,}"),
        ("number type", str(images.array.dtype)),
        ("boxes", "kept" if images.has_boxes else "missing: explanations cannot point into the picture"),
        ("captions a picture", _spread(len(t) for t in data.texts_of_image)),
        ("size", _bytes(images.path.stat().st_size)),
    ]


def _tsv_summary(path: Path) -> list[tuple[str, str]]:
    file = BottomUpTsv(path)
    return [
        ("pictures", f"{len(file):,}"),
        ("regions a picture", _spread(file.region_counts())),
        ("feature width", f"{file.dim:,}"),
        ("number type", "float32 as base64"),
        ("size", _bytes(path.stat().st_size)),
    ]


def _arrays_summary(path: Path) -> list[tuple[str, str]]:
    pictures = open_arrays(path)
    first = pictures.arrays(0)
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    return [
        ("pictures", f"{len(pictures):,}, the first is {pictures.ids[0]}"),
        ("feature width", f"{pictures.dim:,}"),
        ("of the first picture", ", ".join(f"{k} {list(v.shape)} {v.dtype}" for k, v in first.items())),
        ("boxes", pictures.boxes),
        ("size", _bytes(sum(f.stat().st_size for f in files))),
    ]


def _karpathy_summary(path: Path) -> list[tuple[str, str]]:
    images = read_karpathy(path)
    return [
        ("pictures", f"{len(images):,}"),
        ("splits", _splits(Counter(i.split for i in images), "pictures")),
        ("captions a picture", _spread(len(i.sentences) for i in images)),
        ("size", _bytes(path.stat().st_size)),
    ]


def _store_problems(path: Path) -> Iterator[str]:
    store = FeatureStore.open(path)
    faults = 0
    for fault in store.problems():
        faults += 1
        yield fault
    if not len(store):
        yield f"{path} holds no pictures"
    for number, caption in enumerate(store.captions(), start=1):
        if not caption.text.strip():
            yield f"{path / CAPTIONS}: caption {number} is empty"
        if not faults and caption.image not in store.index:
            yield f'{path / CAPTIONS}: caption {number} names the picture "{caption.image}", which is not there'


def _precomp_problems(path: Path) -> Iterator[str]:
    for split in precomp_splits(path):
        try:
            data = open_precomp(split, path)
            for number, text in enumerate(data.texts, start=1):
                if not text:
                    yield f"{path / f'{split}_caps.txt'}, line {number}: the caption is empty"
            assert isinstance(data.images, PrecompImages)
            yield from _unreadable(data.images)
        except SaccadeError as error:
            yield str(error)


def _unreadable(images: RegionSource) -> Iterator[str]:
    unknown = 0
    for n in range(len(images)):
        try:
            images.get(n)
        except UnknownSize as error:  # reported once: one file mends all
            unknown += 1
            if unknown == 1:
                yield str(error)
        except SaccadeError as error:
            yield str(error)


def _tsv_problems(path: Path) -> Iterator[str]:
    seen: set[str] = set()
    dim = None
    for number, line in enumerate(BottomUpTsv(path).lines(), start=1):
        where = f"{path}, line {number}"
        try:
            row = parse_line(line, where, dim)
            row.picture(where)
        except SaccadeError as error:
            yield str(error)
            continue
        dim = dim or row.features.shape[1] or None
        if row.id in seen:
            yield f'{where}: the picture "{row.id}" occurs a second time'
        seen.add(row.id)
    if not seen:
        yield f"{path} holds no readable picture"


def _karpathy_problems(path: Path) -> Iterator[str]:
    seen: set[str] = set()
    for number, image in enumerate(read_karpathy(path)):
        where = f"{path}, images[{number}]"
        if image.split not in KARPATHY_SPLITS:
            yield f'{where}: the split "{image.split}" is none of {", ".join(KARPATHY_SPLITS)}'
        if not image.sentences:
            yield f"{where}: {image.filename} has no sentences"
        if any(not s.raw.strip() for s in image.sentences):
            yield f"{where}: {image.filename} has an empty sentence"
        if image.filename in seen:
            yield f"{where}: {image.filename} occurs a second time"
        seen.add(image.filename)


def _spread(counts: Iterable[int]) -> str:
    values = np.fromiter(counts, dtype=np.int64)
    if not len(values):
        return "none"
    if values.min() == values.max():
        return f"{values.min():,}"
    return f"{values.min():,} to {values.max():,}, mean {values.mean():.1f}"


def _splits(counts: Counter[str], of: str) -> str:
    return ", ".join(f"{name} ({count:,} {of})" for name, count in counts.items()) or "none"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
