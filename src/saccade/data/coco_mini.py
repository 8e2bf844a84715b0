"""COCO photos with all their annotations in one file: `annotations.jsonl` (or .gz), one photo a line, and `images/`.

The photos may have been made smaller; boxes count in the pixels of the original. The photos that come with Saccade's
repository (`photos/`) are kept this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.data.coco import boxed_things
from saccade.data.entry import Entry
from saccade.data.lines import need_file, read_json_lines
from saccade.data.photos import Photo, PhotoFolder, captioned_photos, chosen_splits
from saccade.data.records import BoxedPicture, CaptionedPhotos
from saccade.data.sources import need_root, source
from saccade.errors import SaccadeError

HOLDS = "annotations.jsonl.gz and images/"


@dataclass(frozen=True)
class CocoLine:
    """One line: a photo, its sentences, its things as (category, [x, y, width, height], where it stands)."""

    photo: Photo
    width: int
    height: int
    things: tuple[tuple[str, tuple[float, ...], str], ...]


@source("coco_mini")
def open_coco_mini(split: str, root: Path | None) -> CaptionedPhotos:
    """One split: train and dev are train2017 and val2017."""
    folder = need_root(root, "coco_mini", HOLDS)
    photos = [line.photo for line in read_coco_lines(folder)]
    return captioned_photos("coco_mini", split, photos, _photos(folder), folder)


def boxed_coco_mini(root: Path, split: str) -> tuple[BoxedPicture, ...]:
    lines = list(read_coco_lines(root))
    wanted = chosen_splits(split, {line.photo.split for line in lines}, root)
    photos = _photos(root)
    return tuple(
        boxed_things(line.photo.name, photos.path(line.photo.name, root), line.width, line.height, line.things)
        for line in lines
        if line.photo.split in wanted
    )


def coco_mini_splits(root: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.photo.split for line in read_coco_lines(root)))


def read_coco_lines(root: Path) -> Iterator[CocoLine]:
    yield from read_coco_file(need_file(root, "annotations.jsonl.gz", f"{HOLDS} were expected"))


def read_coco_file(path: Path) -> Iterator[CocoLine]:
    seen: set[str] = set()
    for number, value in read_json_lines(path):
        entry = Entry.of(value, f"{path}, line {number}")
        name = entry.text("image")
        if name in seen:
            raise SaccadeError(f"{entry.where}: {name[:80]} occurs a second time")
        seen.add(name)
        width, height = entry.whole("width", 1), entry.whole("height", 1)
        texts = tuple(text.strip() for text in entry.texts("captions"))
        photo = Photo(name, entry.text("coco_split"), texts, (width, height))
        yield CocoLine(photo, width, height, tuple(_things(entry)))


def _things(entry: Entry) -> Iterator[tuple[str, tuple[float, ...], str]]:
    for thing in entry.entries("objects"):
        box = thing.numbers("bbox_xywh", ("x", "y", "width", "height"))
        if not thing.values.get("iscrowd") and box[2] > 0 and box[3] > 0:
            yield thing.text("category"), box, thing.where


def _photos(root: Path) -> PhotoFolder:
    return PhotoFolder(root / "images" if (root / "images").is_dir() else root)
