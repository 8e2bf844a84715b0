"""Expressions and dialogs about COCO's photos, each of which means one annotated box.

`data=refcoco` (Kazemzadeh et al. 2014, Yu et al. 2016, Mao et al. 2016): a folder of RefCOCO, RefCOCO+ or RefCOCOg as
published, `instances.json` beside `refs(unc).p`, `refs(google).p` or `refs(umd).p`. These are pickles: of them only
plain lists, mappings, texts and numbers are read. Who cut the splits matters for what a figure means: where a folder
has the cuts of two, a split's name says whose it is, `umd-val`.

`data=guesswhat` (de Vries et al. 2017): `guesswhat.train.jsonl.gz`, `.valid` and `.test`; of its dialogs those that led
to the right thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.core.files import read_pickle
from saccade.data.datasets.photos.coco import BOX
from saccade.data.datasets.photos.folder import PhotoFolder, has_words
from saccade.data.records import Candidates, CaptionedPhotos, Referrals, Spoken, joined
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import JsonEntry, need_file, pixel_box, read_items, read_json_lines

REFCOCO_HOLDS = "refs(unc).p (or refs(google).p, refs(umd).p), instances.json, and the photos in images/train2014/"
GUESSWHAT_HOLDS = "guesswhat.train.jsonl.gz …, and the photos in images/train2014/ and images/val2014/"
PHOTO_PLACES = ("images/{}", "{}", "images", "../images/mscoco/images/{}", "../images/{}", "../{}")
FILES = {"train": "train", "valid": "val", "test": "test"}  # of GuessWhat, by the name of the split


class Thing(NamedTuple):
    """An annotated box of a photo."""

    id: int
    box: np.ndarray  # x1, y1, x2, y2 in 0..1
    category: str


class ReferralRow(NamedTuple):
    """A text about a photo, and the thing that it means."""

    photo: str  # the file's name
    text: Spoken
    thing: int  # by its id
    kind: str = ""


def referrals_about(
    name: str,
    split: str,
    rows: Iterable[ReferralRow],
    things: dict[str, list[Thing]],
    folder: PhotoFolder,
    where: object,
) -> Referrals[CaptionedPhotos]:
    """The texts of a split, pictures in the order in which they are first spoken of; each chooses among all things.

    Raises: SaccadeError if there is none, one has no words or means nothing, or a photo is not in the folder.
    """
    photos: dict[str, int] = {}
    kept: list[tuple[ReferralRow, int]] = []
    for row in rows:
        place = {thing.id: n for n, thing in enumerate(things.get(row.photo, ()))}
        if row.thing not in place:
            raise SaccadeError(f"{where}: a text about {row.photo[:80]} means the box {row.thing}, which is not there")
        if not has_words(joined(row.text)):
            raise SaccadeError(f"{where}: a text about {row.photo[:80]} has no words")
        photos.setdefault(row.photo, len(photos))
        kept.append((row, place[row.thing]))
    if not kept:
        raise SaccadeError(f'{where} has no texts of the split "{split}"')
    pictures = CaptionedPhotos(
        name=name,
        split=split,
        ids=tuple(photos),
        paths=tuple(folder.path(photo, where) for photo in photos),
        texts=tuple(joined(row.text) for row, _ in kept),
        image_of_text=np.array([photos[row.photo] for row, _ in kept], dtype=np.int64),
    )
    candidates = tuple(
        Candidates(np.stack([thing.box for thing in things[photo]]), tuple(thing.category for thing in things[photo]))
        for photo in photos
    )
    return Referrals(
        pictures,
        tuple(row.text for row, _ in kept),
        candidates,
        tuple(tuple(range(len(things[row.photo]))) for row, _ in kept),
        tuple(target for _, target in kept),
        tuple(row.kind for row, _ in kept),
    )


def open_refcoco(split: str, root: Path | None) -> Referrals[CaptionedPhotos]:
    """One split: train, val, testA, testB (UNC), or train, val, test (UMD); "umd-val" where the folder has two cuts."""
    folder = need_root(root, "refcoco", REFCOCO_HOLDS)
    instances = need_file(folder, "instances.json", f"{REFCOCO_HOLDS} were expected")
    refs = {by: list(read_refs(path)) for by, path in refs_files(folder).items()}
    wanted = chosen_splits(split, {name for own in _split_names(refs).values() for name in own}, folder)
    names, things = read_coco_things(instances)
    rows = (
        ReferralRow(names[image], text, thing)
        for by, own in refs.items()
        for part, image, thing, texts in own
        if wanted & {part if len(refs) == 1 else "", f"{by}-{part}"} and image in names
        for text in texts
    )
    photos = PhotoFolder(*photo_folders(folder, ("train2014",)))
    return referrals_about(folder.name, split, rows, things, photos, folder)


def refcoco_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    refs = {by: list(read_refs(path)) for by, path in refs_files(folder).items()}
    return {"referring": tuple(name for own in _split_names(refs).values() for name in own)}


Ref = tuple[str, int, int, tuple[str, ...]]  # split, image, thing, texts


def _split_names(refs: dict[str, list[Ref]]) -> dict[str, tuple[str, ...]]:
    """By who cut them."""
    return {
        by: tuple(dict.fromkeys(ref[0] if len(refs) == 1 else f"{by}-{ref[0]}" for ref in own))
        for by, own in refs.items()
    }


def refs_files(folder: Path) -> dict[str, Path]:
    """By who cut the splits. Raises: SaccadeError if there is none."""
    matches = [(re.fullmatch(r"refs\((\w+)\)\.p", path.name), path) for path in sorted(folder.iterdir())]
    found = {match[1]: path for match, path in matches if match}
    if not found:
        raise SaccadeError(
            f"{folder / 'refs(unc).p'} is missing: it holds the expressions, and is to be had from "
            "github.com/lichengunc/refer (refcoco.zip, refcoco+.zip, refcocog.zip)"
        )
    return found


def read_refs(path: Path) -> Iterator[Ref]:
    """`refs(unc).p`, a pickle of plain data: split, image, box and sentences of each thing that is spoken of."""
    found = read_pickle(path, {}, "list of expressions", encoding="latin1")
    if not isinstance(found, list):
        raise SaccadeError(f"{path} is no list of expressions")
    for n, value in enumerate(found):
        entry = JsonEntry.of(value, f"{path}, [{n}]")
        texts = tuple(text for own in entry.entries("sentences") if has_words(text := own.text("sent").strip()))
        yield entry.text("split"), entry.whole("image_id"), entry.whole("ann_id"), texts


def read_coco_things(path: Path) -> tuple[dict[int, str], dict[str, list[Thing]]]:
    """`instances.json` in COCO's style: names of the photos by number, and the things of each photo.

    Boxes without area are left out; a crowd is kept, since an expression may mean it.
    """
    images: dict[int, tuple[str, int, int]] = {}
    names: dict[int, str] = {}
    boxes: list[tuple[int, int, int, tuple[float, ...], str]] = []
    for key, position, item in read_items(path):
        if key not in ("images", "annotations", "categories"):
            continue
        entry = JsonEntry.of(item, f"{path}, {key}[{position}]")
        if key == "images":
            images[entry.whole("id")] = entry.text("file_name"), entry.whole("width", 1), entry.whole("height", 1)
        elif key == "categories":
            names[entry.whole("id")] = entry.text("name")
        else:
            ids = entry.whole("id"), entry.whole("image_id"), entry.whole("category_id")
            boxes.append((*ids, entry.numbers("bbox", BOX), entry.where))
    things: dict[str, list[Thing]] = {name: [] for name, _, _ in images.values()}
    for id, image, category, (x, y, w, h), where in boxes:
        if image not in images or category not in names:
            raise SaccadeError(f"{where}: the picture or the category is not in the file")
        name, width, height = images[image]
        if w > 0 and h > 0:
            things[name].append(Thing(id, pixel_box((x, y, x + w, y + h), width, height, where), names[category]))
    return {id: name for id, (name, _, _) in images.items()}, things


def open_guesswhat(split: str, root: Path | None) -> Referrals[CaptionedPhotos]:
    """One split: train, val or test; dialogs that failed or were broken off are left out."""
    folder = need_root(root, "guesswhat", GUESSWHAT_HOLDS)
    files = guesswhat_files(folder)
    if not files:
        raise SaccadeError(
            f"{folder / 'guesswhat.train.jsonl.gz'} is missing: it holds dialogs, and is to be had from guesswhat.ai"
        )
    parts = sorted(chosen_splits(split, files, folder))
    things: dict[str, list[Thing]] = {}
    rows = [row for part in parts for row in read_dialogs(files[part], things)]
    photos = PhotoFolder(*photo_folders(folder, ("train2014", "val2014")))
    return referrals_about("guesswhat", split, rows, things, photos, folder)


def guesswhat_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    return {"referring": tuple(guesswhat_files(folder))}


def guesswhat_files(folder: Path) -> dict[str, Path]:
    found = {
        split: [folder / f"guesswhat.{name}.jsonl{ending}" for ending in (".gz", "")] for name, split in FILES.items()
    }
    return {split: path for split, paths in found.items() for path in paths[::-1] if path.is_file()}


def read_dialogs(path: Path, things: dict[str, list[Thing]]) -> Iterator[ReferralRow]:
    """A dialog a line, with the photo's things, which are added to `things`."""
    for line, value in read_json_lines(path):
        entry = JsonEntry.of(value, f"{path}, line {line}")
        if entry.text("status") != "success":
            continue
        image = entry.entry("image")
        name, size = image.text("file_name"), (image.whole("width", 1), image.whole("height", 1))
        if name not in things:
            things[name] = [_thing(own, *size) for own in entry.entries("objects")]
        asked = [(qa.text("question").strip(), qa.text("answer").strip().lower()) for qa in entry.entries("qas")]
        yield ReferralRow(name, tuple(map(" ".join, asked)), entry.whole("object_id"))


def _thing(entry: JsonEntry, width: int, height: int) -> Thing:
    x, y, w, h = entry.numbers("bbox", BOX)
    box = pixel_box((x, y, x + w, y + h), width, height, entry.where)
    return Thing(entry.whole("id"), box, entry.text("category"))


def photo_folders(root: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Where COCO's photos lie: a folder of each name, or images/; where there is none, where it was expected."""
    found = [
        next((place for form in PHOTO_PLACES if (place := root / form.format(name)).is_dir()), None) for name in names
    ]
    there = tuple(dict.fromkeys(place for place in found if place is not None))
    return there or (root / "images" / names[0],)
