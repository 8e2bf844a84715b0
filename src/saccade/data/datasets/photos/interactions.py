"""HICO-DET (Chao et al. 2018) and VRD (Lu et al. 2016): photos with pairs of boxes and how they stand to each other.

HICO-DET is published as `anno_bbox.mat`, a MATLAB file; what most code reads is JSON made of it, `trainval_hico.json`
and `test_hico.json`: for each photo `annotations` (boxes with COCO's category ids) and `hoi_annotation` (places of
subject and object among them, and the verb from 1). VRD: `annotations_train.json` and `annotations_test.json`, names
by place in `objects.json` and `predicates.json`, boxes as ymin, ymax, xmin, xmax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from saccade.core.config import load_table
from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder, first_folder
from saccade.data.records import BoxedPicture, Triplet
from saccade.data.registry import chosen_splits
from saccade.data.text_files import JsonEntry, as_text, find_file, need_file, read_json_file

HICO_FILES = {"train": "trainval_hico.json", "test": "test_hico.json"}
HICO_FOLDERS = {"train": ("images/train2015", "train2015", "images"), "test": ("images/test2015", "test2015", "images")}
MATLAB = ("anno_bbox.mat", "anno.mat")
NO_INTERACTION = "no_interaction"
VRD_FOLDERS = {
    "train": ("sg_train_images", "sg_dataset/sg_train_images", "images"),
    "test": ("sg_test_images", "sg_dataset/sg_test_images", "images"),
}
Named = tuple[np.ndarray, str, tuple[str, ...]]


def hico_names() -> tuple[dict[int, str], tuple[str, ...]]:
    """COCO's kinds of thing by their ids, and HICO's verbs in their order."""
    table = load_table(Path(__file__).with_name("hico_names.yaml"))
    return {int(id): name for id, name in table["objects"].items()}, tuple(table["verbs"])


def open_hico_boxes(split: str, root: Path) -> tuple[BoxedPicture, ...]:
    """Persons, things, and what the former do to the latter. A pair with which nothing is done has no relation."""
    files = {part: find_file(root, name, f"annotations/{name}") for part, name in HICO_FILES.items()}
    known = {part: path for part, path in files.items() if path is not None}
    if not known and any((root / name).exists() for name in MATLAB):
        raise SaccadeError(
            f"{root} holds HICO-DET as MATLAB files, which are not read here: put trainval_hico.json and test_hico.json"
            " beside them, the widely used JSON form with its hoi_annotation"
        )
    if not known:
        raise SaccadeError(f"{root / HICO_FILES['train']} is missing: HICO-DET is read from its JSON form")
    parts = sorted(chosen_splits(split, known, root))
    return tuple(p for part in parts for p in read_hico(known[part], first_folder(root, HICO_FOLDERS[part])))


def read_hico(path: Path, photos: Path) -> Iterator[BoxedPicture]:
    objects, verbs = hico_names()
    folder, content = PhotoFolder(photos), read_json_file(path)
    if not isinstance(content, list):
        raise SaccadeError(f"{path} is no list of photos with annotations and hoi_annotation")
    for n, value in enumerate(content):
        entry = JsonEntry.of(value, f"{path}, [{n}]")
        name = entry.text("file_name")
        photo = folder.path(name, path)
        size = photo_size(photo)
        place: dict[int, int] = {}
        things: list[Named] = []
        for number, thing in enumerate(entry.entries("annotations")):
            id = category(thing, "category_id")
            if id not in objects:
                raise SaccadeError(f"{thing.where}: category_id {id} is none of COCO's 80 kinds of thing")
            corners = thing.numbers("bbox", ("x1", "y1", "x2", "y2"))
            if (box := clipped(corners, size)) is not None:
                place[number] = len(things)
                things.append((box, objects[id], ()))
        relations: list[Triplet] = []
        for relation in entry.entries("hoi_annotation"):
            verb, ends = category(relation, "category_id"), [relation.whole(k) for k in ("subject_id", "object_id")]
            if not 1 <= verb <= len(verbs):
                raise SaccadeError(f"{relation.where}: the verb {verb} is none of HICO's 1 to {len(verbs)}")
            if all(end in place for end in ends) and verbs[verb - 1] != NO_INTERACTION:
                relations.append((place[ends[0]], verbs[verb - 1].replace("_", " "), place[ends[1]]))
        yield BoxedPicture.of(name, photo, size, things, relations=dict.fromkeys(relations))


def category(entry: JsonEntry, key: str) -> int:
    """Some copies have ids as text."""
    value = entry.values.get(key)
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else entry.whole(key)


def hico_splits(root: Path) -> dict[str, tuple[str, ...]]:
    found = [part for part, name in HICO_FILES.items() if find_file(root, name, f"annotations/{name}") is not None]
    return {"boxes": tuple(found)}


def open_vrd_boxes(split: str, root: Path) -> tuple[BoxedPicture, ...]:
    """Things of 100 kinds and 70 predicates, as published. Splits: train, test."""
    files = {part: find_file(root, f"annotations_{part}.json") for part in VRD_FOLDERS}
    known = {part: path for part, path in files.items() if path is not None}
    if not known:
        raise SaccadeError(f"{root / 'annotations_train.json'} is missing: it holds VRD's pairs of boxes")
    objects, predicates = (vrd_names(root, name) for name in ("objects.json", "predicates.json"))
    parts = sorted(chosen_splits(split, known, root))
    return tuple(
        picture
        for part in parts
        for picture in read_vrd(known[part], first_folder(root, VRD_FOLDERS[part]), objects, predicates)
    )


def vrd_splits(root: Path) -> dict[str, tuple[str, ...]]:
    return {"boxes": tuple(part for part in VRD_FOLDERS if find_file(root, f"annotations_{part}.json") is not None)}


def vrd_names(root: Path, name: str) -> tuple[str, ...]:
    path = need_file(root, name, "it says what the numbers in VRD's annotations mean")
    found = read_json_file(path)
    if not isinstance(found, list) or not found:
        raise SaccadeError(f"{path} is no list of names")
    return tuple(as_text(value, f"{path}, [{n}]") for n, value in enumerate(found))


def read_vrd(path: Path, photos: Path, objects: Sequence[str], predicates: Sequence[str]) -> Iterator[BoxedPicture]:
    folder, content = PhotoFolder(photos), read_json_file(path)
    if not isinstance(content, dict):
        raise SaccadeError(f"{path} is no mapping from photos to relations")
    for name, rows in content.items():
        if name not in folder.names:
            continue  # the annotations name some photos that were never given out
        photo = folder.path(name, path)
        size = photo_size(photo)
        things: list[Named] = []
        place: dict[tuple[bytes, str], int] = {}
        relations: dict[Triplet, None] = {}
        for relation in JsonEntry({name: rows}, f"{path}, {name}").entries(name):
            ends = []
            for key in ("subject", "object"):
                thing = relation.entry(key)
                top, bottom, left, right = thing.numbers("bbox", ("ymin", "ymax", "xmin", "xmax"))
                kind = named(objects, thing, "category")
                if (box := clipped((left, top, right, bottom), size)) is not None:
                    ends.append(place.setdefault((box.tobytes(), kind), len(things)))
                    if ends[-1] == len(things):
                        things.append((box, kind, ()))
            if len(ends) == 2:
                relations[ends[0], named(predicates, relation, "predicate"), ends[1]] = None
        yield BoxedPicture.of(name, photo, size, things, relations=relations)


def named(names: Sequence[str], entry: JsonEntry, key: str) -> str:
    place = entry.whole(key)
    if place >= len(names):
        raise SaccadeError(f'{entry.where}: "{key}" is {place}, there are {len(names)} names')
    return names[place]


def clipped(corners: tuple[float, ...], size: tuple[int, int]) -> np.ndarray | None:
    """The part of a box in pixels that lies inside the photo, in 0..1; None if there is none."""
    box = np.clip(np.array(corners) / (size * 2), 0.0, 1.0).astype(np.float32)
    return box if (box[2:] > box[:2]).all() else None


def photo_size(path: Path) -> tuple[int, int]:
    """Width and height, which neither annotation has. Raises: SaccadeError if it is no picture."""
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            width, height = image.size
            return width, height
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise SaccadeError(f"{path} is no photo that can be read") from error
