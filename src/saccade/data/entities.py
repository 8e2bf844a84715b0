"""Flickr30k Entities (Plummer et al. 2015): which words of a caption name which boxes of the photo.

A *chain* joins the phrases of a photo's five sentences that mean the same thing; most chains have boxes. Two layouts
become one record: `entities.jsonl.gz` (one photo a line), and as published `Annotations/*.xml` with `Sentences/*.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from saccade.data.entry import Entry, as_number, pixel_box
from saccade.data.lines import find_file, read_json_lines
from saccade.data.photos import PhotoFolder, chosen_splits, first_folder
from saccade.data.records import BoxedPicture
from saccade.errors import SaccadeError
from saccade.language.phrases import NounPhrase, chain_name, read_phrase

HOLDS = "entities.jsonl.gz, or as published Annotations/ and Sentences/"
PHOTO_FOLDERS = ("images", "flickr30k-images", "flickr30k_images", "Flicker8k_Dataset", "Flickr8k_Dataset")


@dataclass(frozen=True)
class EntityPhrase:
    """Some words of a sentence that name a thing."""

    first_word: int  # its place among the words of the sentence, split at blanks
    words: tuple[str, ...]
    chain: str  # "0": nothing that a photo shows
    types: tuple[str, ...]  # people, clothing, bodyparts, animals, vehicles, instruments, scene, other, notvisual


@dataclass(frozen=True)
class EntitySentence:
    text: str
    phrases: tuple[EntityPhrase, ...]


@dataclass(frozen=True)
class EntityPicture:
    """One photo with its sentences, the phrases in them, and their boxes."""

    id: str  # the file's name
    width: int
    height: int
    sentences: tuple[EntitySentence, ...]
    boxes: Mapping[str, Float32[np.ndarray, "box 4"]]  # by chain, x1, y1, x2, y2 in 0..1
    scene: tuple[str, ...] = ()  # chains that mean the whole picture
    nobox: tuple[str, ...] = ()  # chains that could not be boxed
    split: str | None = None

    def phrases(self, chain: str) -> Iterator[EntityPhrase]:
        return (p for sentence in self.sentences for p in sentence.phrases if p.chain == chain)


def read_entities(root: Path, split: str | None = None) -> Iterator[EntityPicture]:
    """The photos of a split ("train+extra" is a sum), or of all where none is given."""
    path = find_file(root, "entities.jsonl.gz")
    if path is not None:
        pictures = read_entity_lines(path)
        if split is None:
            yield from pictures
            return
        found = list(pictures)
        wanted = chosen_splits(split, {p.split for p in found if p.split is not None}, path)
        yield from (picture for picture in found if picture.split in wanted)
    elif (root / "Annotations").is_dir():
        from saccade.data.entities_published import read_published

        yield from read_published(root, split)
    else:
        raise SaccadeError(f"{root} has no Entities: {HOLDS} were expected there")


def boxed_entities(root: Path, split: str, photos: Path | None = None) -> tuple[BoxedPicture, ...]:
    """Photos with named boxes: each chain by the noun most of its phrases use, its adjectives as attributes.

    `photos` is the folder of photos, where it is none of the usual ones below `root`.
    """
    pictures = list(read_entities(root, split))
    folder = PhotoFolder(photos or first_folder(root, PHOTO_FOLDERS))
    return tuple(boxed_picture(picture, folder.path(picture.id, root)) for picture in pictures)


def boxed_picture(picture: EntityPicture, path: Path) -> BoxedPicture:
    """Chains that no phrase gives a name (pronouns) are left out; the same box under the same name counts once."""
    things: dict[tuple[tuple[float, ...], str], dict[str, None]] = {}
    for chain, boxes in picture.boxes.items():
        named = chain_name(read_entity(phrase) for phrase in picture.phrases(chain))
        if named is not None and named.name is not None:
            for box in boxes.tolist():
                things.setdefault((tuple(box), named.name), {}).update(dict.fromkeys(named.attributes))
    return BoxedPicture(
        id=picture.id,
        path=path,
        width=picture.width,
        height=picture.height,
        boxes=np.array([box for box, _ in things], dtype=np.float32).reshape(-1, 4),
        names=tuple(name for _, name in things),
        attributes=tuple(tuple(attributes) for attributes in things.values()),
    )


def read_entity(phrase: EntityPhrase) -> NounPhrase:
    """The thing that a phrase names; "(a man in) black", marked as clothing, are black clothes."""
    named = read_phrase(phrase.words)
    if named.name is None and named.attributes and "clothing" in phrase.types:
        return NounPhrase("clothes", named.attributes)
    return named


def corner_box(corners: list[float], width: int, height: int, where: str) -> Float32[np.ndarray, " 4"]:
    """xmin, ymin, xmax, ymax as Entities counts pixels: from 1, the last one included."""
    x1, y1, x2, y2 = corners
    return pixel_box((x1 - 1, y1 - 1, x2, y2), width, height, where)


def read_entity_lines(path: Path) -> Iterator[EntityPicture]:
    """`entities.jsonl.gz`: image, width, height, split, boxes by chain in pixels, scene, nobox, sentences."""
    seen: set[str] = set()
    for line, value in read_json_lines(path):
        entry = Entry.of(value, f"{path}, line {line}")
        picture = _picture(entry)
        if picture.id in seen:
            raise SaccadeError(f"{entry.where}: {picture.id} occurs a second time")
        seen.add(picture.id)
        yield picture


def _picture(entry: Entry) -> EntityPicture:
    width, height = entry.whole("width", 1), entry.whole("height", 1)
    boxed = entry.entry("boxes")
    boxes = {}
    for chain in boxed.values:
        rows = []
        for n, corners in enumerate(boxed.list(chain)):
            where = f"{entry.where}: boxes.{chain}[{n}]"
            if not isinstance(corners, list) or len(corners) != 4:
                raise SaccadeError(f"{where} is not [xmin, ymin, xmax, ymax]")
            rows.append(corner_box([as_number(c, where) for c in corners], width, height, where))
        boxes[chain] = np.array(rows, dtype=np.float32).reshape(-1, 4)
    return EntityPicture(
        id=entry.text("image"),
        width=width,
        height=height,
        sentences=tuple(_sentence(sentence) for sentence in entry.entries("sentences")),
        boxes=boxes,
        scene=entry.texts("scene"),
        nobox=entry.texts("nobox"),
        split=entry.text("split") if "split" in entry else None,
    )


def _sentence(entry: Entry) -> EntitySentence:
    text = entry.text("text")
    words = text.split()
    phrases = []
    for phrase in entry.entries("phrases"):
        first, count = phrase.whole("first_word"), phrase.whole("n_words", 1)
        if first + count > len(words):
            raise SaccadeError(f"{phrase.where}: words {first} to {first + count - 1} of {len(words)} were marked")
        found = tuple(words[first : first + count])
        phrases.append(EntityPhrase(first, found, phrase.text("chain"), phrase.texts("types")))
    return EntitySentence(text, tuple(phrases))
