"""Sentences for pictures that are there, from whatever file holds them: some of a data set's pictures are enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from saccade.data.captions import Caption, read_captions
from saccade.data.entry import Entry
from saccade.data.flickr8k import read_tokens
from saccade.data.karpathy import read_karpathy
from saccade.data.lines import read_json_file
from saccade.data.listing import by_name
from saccade.errors import SaccadeError


def captions_of(path: Path, ids: Iterable[str]) -> tuple[Caption, ...]:
    """The sentences of a file that describe these pictures, under their ids.

    Read are captions.jsonl as a store has it, Karpathy's dataset*.json, COCO's captions*.json, and lines
    `photo.jpg#0<TAB>sentence` as Flickr8k and Flickr30k have them. Sentences of other pictures are left out.
    """
    ids = list(ids)
    names = by_name(ids)
    first: str | None = None
    found = []
    for caption in _read(path):
        first = first or caption.image
        if caption.image in names and caption.text.strip():
            found.append(Caption(names[caption.image], caption.text, caption.split))
    if not found:
        there = f'describes "{first}"' if first else "is empty"
        raise SaccadeError(
            f'{path} describes none of the {len(ids)} pictures: it {there}, they are called "{ids[0]}" …'
        )
    return tuple(found)


def _read(path: Path) -> Iterator[Caption]:
    suffixes = [s for s in path.suffixes if s != ".gz"]
    if suffixes[-1:] == [".jsonl"]:
        yield from read_captions(path)
    elif suffixes[-1:] == [".json"]:
        values = read_json_file(path)
        yield from _coco(values, path) if isinstance(values, dict) and "annotations" in values else _karpathy(path)
    else:
        for name, text in read_tokens(path):
            yield Caption(name, text)


def _karpathy(path: Path) -> Iterator[Caption]:
    for image in read_karpathy(path):
        for sentence in image.sentences:
            yield Caption(image.filename, sentence.raw, image.split)


def _coco(values: Any, path: Path) -> Iterator[Caption]:
    file = Entry.of(values, str(path))
    names = {image.whole("id"): image.text("file_name") for image in file.entries("images")}
    for annotation in file.entries("annotations"):
        owner = annotation.whole("image_id")
        if owner not in names:
            raise SaccadeError(f'{annotation.where}: no picture has the id {owner} that "image_id" names')
        yield Caption(names[owner], annotation.text("caption"))
