"""COCO (Lin et al. 2014): photos with five sentences, and boxes of 80 kinds of things.

`data=coco`: captions come either from `annotations/captions_train2017.json` and its kin, or, where `dataset_coco.json`
lies in the folder, in Karpathy's splits (train, restval, val, test), which most papers on captions and matching use.

`data=coco_mini`: all annotations in one file, `annotations.jsonl` (or .gz), one photo a line, and `images/`. The photos
may have been made smaller; boxes count in the pixels of the original. Saccade's own `photos/` are kept this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import Photo, PhotoFolder, captioned_photos
from saccade.data.datasets.photos.karpathy import KarpathyImage, karpathy_photos, read_karpathy
from saccade.data.records import BoxedPicture, CaptionedPhotos
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import JsonEntry, find_file, need_file, pixel_box, read_items, read_json_lines

FOLDER_HOLDS = "annotations/captions_train2017.json … or dataset_coco.json, and the photos in images/train2017/ …"
MINI_FOLDER_HOLDS = "annotations.jsonl.gz and images/"
BOX = ("x", "y", "width", "height")  # in pixels

Thing = tuple[str, tuple[float, ...], str]  # its category, its `BOX`, and where it stands in a file


def open_coco(split: str, root: Path | None) -> CaptionedPhotos:
    """One split or a sum: of Karpathy's file "train+restval", of COCO's own "train" (train2017 where it is there)."""
    folder = need_root(root, "coco", FOLDER_HOLDS)
    karpathy = find_file(folder, "dataset_coco.json")
    if karpathy is not None:
        photos = PhotoFolder(*_photo_folders(folder))

        def file_name(image: KarpathyImage) -> str:  # the file has the names of 2014, COCO_val2014_000000391895.jpg …
            short = image.filename.rsplit("_", 1)[-1]  # … and the folders of 2017 only the number
            return short if image.filename not in photos.names and short in photos.names else image.filename

        return karpathy_photos("coco", split, karpathy, photos, file_name)
    files = annotation_files(folder, "captions")
    if not files:
        raise SaccadeError(f"{folder} has no captions: COCO is {FOLDER_HOLDS}")
    parts = sorted(chosen_splits(split, files, folder / "annotations"))
    photos = PhotoFolder(*(_folder_of(folder, part) for part in parts))
    entries = [photo for part in parts for photo in read_captions_file(files[part], part)]
    return captioned_photos("coco", split, entries, photos, folder / "annotations")


def open_coco_boxes(split: str, root: Path) -> tuple[BoxedPicture, ...]:
    """The boxes of `annotations/instances_*.json`; in a folder with `annotations.jsonl`, those of that (coco_mini)."""
    if find_file(root, "annotations.jsonl.gz") is not None:
        return open_coco_mini_boxes(split, root)
    files = annotation_files(root, "instances")
    if not files:
        raise SaccadeError(f"{root / 'annotations' / 'instances_train2017.json'} is missing: it holds COCO's boxes")
    parts = sorted(chosen_splits(split, files, root / "annotations"))
    return tuple(p for part in parts for p in read_instances(files[part], _folder_of(root, part)))


def read_instances(path: Path, photos: Path) -> Iterator[BoxedPicture]:
    """An annotation file in COCO's style: images, annotations with `bbox` [x, y, width, height], categories.

    Crowds (many things under one box) and boxes without area are left out; COCO has no attributes.
    """
    images: dict[int, tuple[str, tuple[int, int]]] = {}
    names: dict[int, str] = {}
    boxes: dict[int, list[tuple[int, tuple[float, ...], str]]] = {}
    for key, position, item in read_items(path):
        if key not in ("images", "annotations", "categories"):
            continue
        entry = JsonEntry.of(item, f"{path}, {key}[{position}]")
        if key == "images":
            size = entry.whole("width", 1), entry.whole("height", 1)
            images[entry.whole("id")] = entry.text("file_name"), size
        elif key == "categories":
            names[entry.whole("id")] = entry.text("name")
        elif not entry.values.get("iscrowd"):
            box = entry.numbers("bbox", BOX)
            boxes.setdefault(entry.whole("image_id"), []).append((entry.whole("category_id"), box, entry.where))
    _all_known(boxes, images, path, "the picture")
    _all_known({c for found in boxes.values() for c, _, _ in found}, names, path, "the category")
    folder = PhotoFolder(photos)
    for id, (file_name, size) in images.items():
        things = [(names[c], b, where) for c, b, where in boxes.get(id, ()) if b[2] > 0 and b[3] > 0]
        yield boxed_things(file_name, folder.path(file_name, path), size, things)


def boxed_things(name: str, path: Path, size: tuple[int, int], things: Iterable[Thing]) -> BoxedPicture:
    """A picture of (width, height) pixels with its things."""
    boxes = ((thing, pixel_box((x, y, x + w, y + h), *size, where)) for thing, (x, y, w, h), where in things)
    return BoxedPicture.of(name, path, size, ((box, thing, ()) for thing, box in boxes))


def read_captions_file(path: Path, split: str) -> list[Photo]:
    """`captions_train2017.json`: images with `id` and `file_name`, annotations with `image_id` and `caption`."""
    names: dict[int, str] = {}
    texts: dict[int, list[str]] = {}
    for key, position, item in read_items(path):
        if key in ("images", "annotations"):
            entry = JsonEntry.of(item, f"{path}, {key}[{position}]")
            if key == "images":
                names[entry.whole("id")] = entry.text("file_name")
            else:
                texts.setdefault(entry.whole("image_id"), []).append(entry.text("caption").strip())
    if not names:
        raise SaccadeError(f'{path} is not a caption file of COCO: it has no "images"')
    _all_known(texts, names, path, "the picture")
    return [Photo(name, split, tuple(texts.get(id, ()))) for id, name in names.items()]


def coco_splits(root: Path) -> dict[str, tuple[str, ...]]:
    """The splits of a folder by what they hold: Karpathy's where his file is there, else those of COCO's own files."""
    karpathy = find_file(root, "dataset_coco.json")
    if karpathy is not None:
        return {"captions": tuple(dict.fromkeys(image.split for image in read_karpathy(karpathy)))}
    kinds = (("captions", "captions"), ("boxes", "instances"))
    return {holds: tuple(files) for holds, kind in kinds if (files := annotation_files(root, kind))}


def annotation_files(root: Path, kind: str) -> dict[str, Path]:
    """The files of a kind (captions, instances) by split: {"train2017": …/captions_train2017.json}."""
    found = sorted((root / "annotations").glob(f"{kind}_*.json*")) + sorted(root.glob(f"{kind}_*.json*"))
    matches = [(re.fullmatch(rf"{kind}_(\w+)\.json(?:\.gz)?", path.name), path) for path in found]
    return {match.group(1): path for match, path in matches if match}


def _all_known(wanted: Iterable[int], known: dict[int, Any], path: Path, what: str) -> None:
    lost = next((id for id in wanted if id not in known), None)
    if lost is not None:
        raise SaccadeError(f"{path}: an annotation names {what} {lost}, which is not in the file")


def _folder_of(root: Path, split: str) -> Path:
    places = (root / "images" / split, root / split, root / "images")
    return next((place for place in places if place.is_dir()), places[0])


def _photo_folders(root: Path) -> tuple[Path, ...]:
    """Every folder that may hold photos: those by year, and images/ itself where the photos lie in it."""
    years = [p for place in (root / "images", root) for p in sorted(place.glob("*20[0-9][0-9]")) if p.is_dir()]
    return tuple(years) or (root / "images",)


def open_coco_mini(split: str, root: Path | None) -> CaptionedPhotos:
    """One split: train and dev are train2017 and val2017."""
    folder = need_root(root, "coco_mini", MINI_FOLDER_HOLDS)
    photos = [photo for photo, _ in read_coco_lines(_mini_file(folder))]
    return captioned_photos("coco_mini", split, photos, _mini_photos(folder), folder)


def open_coco_mini_boxes(split: str, root: Path) -> tuple[BoxedPicture, ...]:
    lines = list(read_coco_lines(_mini_file(root)))
    wanted = chosen_splits(split, {photo.split for photo, _ in lines}, root)
    photos = _mini_photos(root)
    return tuple(
        boxed_things(photo.name, photos.path(photo.name, root), photo.size, things)
        for photo, things in lines
        if photo.split in wanted and photo.size is not None
    )


def coco_mini_splits(root: Path) -> dict[str, tuple[str, ...]]:
    splits = tuple(dict.fromkeys(photo.split for photo, _ in read_coco_lines(_mini_file(root))))
    return {"captions": splits, "boxes": splits}


def read_coco_lines(path: Path) -> Iterator[tuple[Photo, tuple[Thing, ...]]]:
    """`annotations.jsonl`: each photo with its size and its sentences, and its things without crowds."""
    seen: set[str] = set()
    for number, value in read_json_lines(path):
        entry = JsonEntry.of(value, f"{path}, line {number}")
        name = entry.text("image")
        if name in seen:
            raise SaccadeError(f"{entry.where}: {name[:80]} occurs a second time")
        seen.add(name)
        size = entry.whole("width", 1), entry.whole("height", 1)
        texts = tuple(text.strip() for text in entry.texts("captions"))
        photo = Photo(name, entry.text("coco_split"), texts, size)
        boxes = [(thing, thing.numbers("bbox_xywh", BOX)) for thing in entry.entries("objects")]
        real = [(thing, box) for thing, box in boxes if not thing.values.get("iscrowd") and box[2] > 0 and box[3] > 0]
        yield photo, tuple((thing.text("category"), box, thing.where) for thing, box in real)


def _mini_file(root: Path) -> Path:
    return need_file(root, "annotations.jsonl.gz", f"{MINI_FOLDER_HOLDS} were expected")


def _mini_photos(root: Path) -> PhotoFolder:
    return PhotoFolder(root / "images" if (root / "images").is_dir() else root)
