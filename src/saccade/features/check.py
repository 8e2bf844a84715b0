"""A photo data set on disk, looked over: which parts are there, what each split holds, what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.entities import boxed_entities
from saccade.data.datasets.photo_sets import PhotoDataSet, best_layout, found, missing
from saccade.data.datasets.photos import NoCaptions, NoSplit
from saccade.data.records import BoxedPicture, CaptionedPhotos

SHOWN = 3  # files that a part names; the others are counted
Captions = Callable[[str], CaptionedPhotos]
Boxes = Callable[[str], tuple[BoxedPicture, ...]]


@dataclass(frozen=True)
class SplitCounts:
    """What one split holds; a note where it cannot be opened and that is no fault."""

    split: str
    photos: int = 0
    captions: int = 0
    boxes: int | None = None
    note: str = ""
    paths: tuple[Path, ...] = ()


def parts_of(data_set: PhotoDataSet, folder: Path) -> Iterator[tuple[str, str, str]]:
    """(name, "here" or "missing" or "not here", what it holds) of each part of the layout that fits best."""
    for part in best_layout(data_set, folder):
        there = found(folder, part.names)
        if there:
            names = [str(p.relative_to(folder)) + ("/" if p.is_dir() else "") for p in there[:SHOWN]]
            more = [f"{len(there) - SHOWN:,} more"] if len(there) > SHOWN else []
            yield ", ".join([*names, *more]), "here", part.holds
        else:
            where = part.home or data_set.home
            yield part.names[0], "missing" if part.needed else "not here", f"{part.holds}; from {where}"


def split_counts(data_set: PhotoDataSet, folder: Path, faults: list[str]) -> Iterator[SplitCounts]:
    """Each split opened once; what its readers refuse is put into `faults`."""
    faults += missing(data_set, folder)
    if faults:
        return
    read_captions, read_boxes, splits = _readers(data_set.name, folder)
    for split in splits:
        counts = SplitCounts(split)
        try:
            boxed = _boxes(read_boxes, split) if read_boxes else None
            photos = _captions(read_captions, split, boxed) if read_captions else None
        except NoCaptions as error:
            counts = SplitCounts(split, note=str(error))
        except SaccadeError as error:
            faults.append(str(error))
            continue
        else:
            counts = SplitCounts(
                split,
                photos=len(photos.paths) if photos else len(boxed or ()),
                captions=len(photos.texts) if photos else 0,
                boxes=None if boxed is None else sum(len(picture.names) for picture in boxed),
                paths=photos.paths if photos else tuple(picture.path for picture in boxed or ()),
            )
        yield counts


def broken_photos(counts: list[SplitCounts], advance: Callable[[], None] = lambda: None) -> Iterator[str]:
    """A sentence for each photo that does not open."""
    from saccade.vision.pictures import open_picture

    for path in dict.fromkeys(path for split in counts for path in split.paths):
        try:
            open_picture(path)
        except SaccadeError as error:
            yield str(error)
        advance()


def _boxes(read: Boxes, split: str) -> tuple[BoxedPicture, ...] | None:
    try:
        return read(split)
    except NoSplit:  # captions of a split without boxes are no fault
        return None


def _captions(read: Captions, split: str, boxed: tuple[BoxedPicture, ...] | None) -> CaptionedPhotos | None:
    try:
        return read(split)
    except NoSplit:
        if boxed is None:
            raise
        return None  # nor are boxes of a split without captions


def _readers(name: str, folder: Path) -> tuple[Captions | None, Boxes | None, tuple[str, ...]]:
    """How to read captions and boxes of a split, and which splits there are."""
    if name == "flickr8k":
        from saccade.data.datasets.flickr8k import flickr8k_splits, open_flickr8k

        has_boxes = bool(found(folder, ("entities.jsonl.gz", "entities.jsonl")))
        boxes = (lambda split: boxed_entities(folder, split)) if has_boxes else None
        return lambda split: open_flickr8k(split, folder), boxes, flickr8k_splits(folder)
    if name == "flickr30k":
        from saccade.data.datasets.flickr30k import open_flickr30k

        has_boxes = bool(found(folder, ("Annotations/",))) and bool(found(folder, ("train.txt",)))
        boxes = (lambda split: boxed_entities(folder, split)) if has_boxes else None
        return lambda split: open_flickr30k(split, folder), boxes, ("train", "val", "test")
    if name == "coco_mini":
        from saccade.data.datasets.coco import boxed_coco_mini, coco_mini_splits, open_coco_mini

        splits = coco_mini_splits(folder)
        return lambda split: open_coco_mini(split, folder), lambda split: boxed_coco_mini(folder, split), splits
    if name == "coco":
        from saccade.data.datasets.coco import annotation_files, boxed_coco, coco_splits, open_coco

        spoken, files = coco_splits(folder), annotation_files(folder, "instances")
        if files and not found(folder, ("dataset_coco.json",)):
            captions = (lambda split: open_coco(split, folder)) if spoken else None
            return captions, lambda split: boxed_coco(folder, split), tuple(dict.fromkeys([*spoken, *files]))
        return lambda split: open_coco(split, folder), None, spoken
    from saccade.data.datasets.visual_genome import boxed_visual_genome

    return None, lambda split: boxed_visual_genome(folder, split), ("train", "dev")
