"""Visual Genome (Krishna et al. 2017): 108,077 photos with objects, attributes, relations and described regions.

The files hold one photo an item and are read item by item. Some published boxes reach beyond their photo: they are cut
at its border, and those with nothing left inside are left out. Photos lie in `VG_100K/` and `VG_100K_2/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import PhotoFolder
from saccade.data.records import BoxedPicture, PhrasedBoxes
from saccade.data.registry import chosen_splits
from saccade.data.text_files import JsonEntry, find_file, need_file, read_items

EXPECTED = (
    "Visual Genome is image_data.json, objects.json or attributes.json, and the photos in VG_100K/ and VG_100K_2/"
)
PHOTO_FOLDERS = ("VG_100K", "VG_100K_2", "images/VG_100K", "images/VG_100K_2", "images")
DEV_EVERY = 20  # there is no official split: every twentieth photo, by its number, is dev


@dataclass(frozen=True)
class VisualGenomeImage:
    id: int
    width: int
    height: int


@dataclass(frozen=True)
class DescribedRegion:
    """A box and what somebody wrote about it."""

    text: str
    box: Float32[np.ndarray, " 4"]  # x1, y1, x2, y2 in 0..1


@dataclass(frozen=True)
class RelatedThing:
    name: str
    box: Float32[np.ndarray, " 4"]


@dataclass(frozen=True)
class RegionRelation:
    """dog – chases – ball, each with its box."""

    subject: RelatedThing
    predicate: str
    object: RelatedThing


def open_visual_genome_boxes(split: str, root: Path) -> tuple[BoxedPicture, ...]:
    """Objects with their names and attributes. Splits: train, dev (every twentieth photo), all."""
    return tuple(read_objects(root, split))


def visual_genome_splits(root: Path) -> dict[str, tuple[str, ...]]:
    """There is no official split: `DEV_EVERY` makes one."""
    return {"boxes": ("train", "dev"), "phrases": ("train", "dev")}


def read_image_data(root: Path) -> dict[int, VisualGenomeImage]:
    """`image_data.json`: every photo's number and size."""
    path = need_file(root, "image_data.json", EXPECTED)
    images: dict[int, VisualGenomeImage] = {}
    for entry in _entries(path):
        id = entry.whole("image_id")
        if id in images:
            raise SaccadeError(f"{entry.where}: the photo {id} occurs a second time")
        images[id] = VisualGenomeImage(id, entry.whole("width", 1), entry.whole("height", 1))
    return images


def read_objects(root: Path, split: str = "all") -> Iterator[BoxedPicture]:
    """From `attributes.json` where it is there (objects with attributes), else from `objects.json`.

    With their relations where `relationships.json` is there; a thing that only a relation names is one too.
    """
    path = find_file(root, "attributes.json") or need_file(root, "objects.json", EXPECTED)
    key = path.name.partition(".")[0]
    photos = _photos(root)
    related = find_file(root, "relationships.json") is not None
    relations = {image.id: found for image, found in read_relations(root, split)} if related else {}
    for image, entry in _pictures(root, path, split):
        things = []
        for thing in entry.entries(key):
            box = _box(thing, image)
            name = next((name.strip().lower() for name in thing.texts("names") if name.strip()), None)
            if box is not None and name is not None:
                words = thing.texts("attributes") if "attributes" in thing else ()
                things.append((box, name, tuple(dict.fromkeys(word.strip().lower() for word in words if word.strip()))))
        place = {(name, box.tobytes()): n for n, (box, name, _) in reversed(list(enumerate(things)))}
        triplets = []
        for relation in relations.get(image.id, ()):
            ends = []
            for end in (relation.subject, relation.object):
                ends.append(place.setdefault((end.name, end.box.tobytes()), len(things)))
                if ends[-1] == len(things):
                    things.append((end.box, end.name, ()))
            triplets.append((ends[0], relation.predicate, ends[1]))
        photo = photos.path(f"{image.id}.jpg", path)
        yield BoxedPicture.of(str(image.id), photo, (image.width, image.height), things, relations=triplets)


def _photos(root: Path) -> PhotoFolder:
    folders = [root / name for name in PHOTO_FOLDERS if (root / name).is_dir()]
    return PhotoFolder(*(folders or [root / PHOTO_FOLDERS[0]]))


def open_visual_genome_phrases(split: str, root: Path) -> Iterator[tuple[str, Path, PhrasedBoxes]]:
    """(id, photo, boxes with phrases) of each photo: its described regions."""
    photos = _photos(root)
    for image, regions in read_regions(root, split):
        boxes = np.array([region.box for region in regions], dtype=np.float32).reshape(-1, 4)
        photo = photos.path(f"{image.id}.jpg", root)
        yield str(image.id), photo, PhrasedBoxes(boxes, tuple((region.text.lower(),) for region in regions))


def read_regions(root: Path, split: str = "all") -> Iterator[tuple[VisualGenomeImage, tuple[DescribedRegion, ...]]]:
    """`region_descriptions.json`: what was written about parts of each photo."""
    path = need_file(root, "region_descriptions.json", EXPECTED)
    for image, entry in _pictures(root, path, split):
        regions = [(region.text("phrase").strip(), _box(region, image)) for region in entry.entries("regions")]
        yield image, tuple(DescribedRegion(text, box) for text, box in regions if text and box is not None)


def read_relations(root: Path, split: str = "all") -> Iterator[tuple[VisualGenomeImage, tuple[RegionRelation, ...]]]:
    """`relationships.json`: which thing does what to which."""
    path = need_file(root, "relationships.json", EXPECTED)
    for image, entry in _pictures(root, path, split):
        found = []
        for relation in entry.entries("relationships"):
            subject, target = (_thing(relation.entry(role), image) for role in ("subject", "object"))
            if subject is not None and target is not None:
                found.append(RegionRelation(subject, relation.text("predicate").strip().lower(), target))
        yield image, tuple(found)


def _thing(entry: JsonEntry, image: VisualGenomeImage) -> RelatedThing | None:
    name = entry.text("name") if "name" in entry else next(iter(entry.texts("names")), "")  # both were published
    box = _box(entry, image)
    return None if box is None or not name.strip() else RelatedThing(name.strip().lower(), box)


def _box(entry: JsonEntry, image: VisualGenomeImage) -> Float32[np.ndarray, " 4"] | None:
    """x, y, w, h (or width, height) in pixels, cut at the photo's border; None where nothing is left."""
    x, y = entry.number("x"), entry.number("y")
    w, h = (entry.number(short if short in entry else long) for short, long in (("w", "width"), ("h", "height")))
    box = np.array([x / image.width, y / image.height, (x + w) / image.width, (y + h) / image.height])
    box = np.clip(box, 0.0, 1.0).astype(np.float32)
    return box if box[2] > box[0] and box[3] > box[1] else None


def _pictures(root: Path, path: Path, split: str) -> Iterator[tuple[VisualGenomeImage, JsonEntry]]:
    images = read_image_data(root)
    parts = chosen_splits(split, ("train", "dev", "all"), "Visual Genome")
    for entry in _entries(path):
        id = entry.whole("image_id" if "image_id" in entry else "id")
        if id not in images:
            raise SaccadeError(f"{entry.where}: the photo {id} is not in image_data.json")
        if "all" in parts or ("dev" if id % DEV_EVERY == 0 else "train") in parts:
            yield images[id], entry


def _entries(path: Path) -> Iterator[JsonEntry]:
    for key, position, item in read_items(path):
        if key:
            raise SaccadeError(f"{path} is a mapping, a list of photos was expected")
        yield JsonEntry.of(item, f"{path}, [{position}]")
