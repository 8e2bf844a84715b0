"""Sentences for pictures that are there, from whatever file holds them: some of a data set's pictures are enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.coco import read_captions_file, read_coco_file
from saccade.data.datasets.flickr8k import read_tokens
from saccade.data.datasets.karpathy import read_karpathy
from saccade.data.text.captions import Caption, read_captions
from saccade.data.text.lines import read_json_file, read_json_lines
from saccade.features.listing import by_name


def captions_of(path: Path, ids: Iterable[str]) -> tuple[Caption, ...]:
    """The sentences of a file that describe these pictures, under their ids.

    Read are captions.jsonl as a store has it, Karpathy's dataset*.json, COCO's captions*.json, the annotations.jsonl of
    coco_mini, and lines `photo.jpg#0<TAB>sentence` as Flickr8k and Flickr30k have them. Sentences of other pictures are
    left out.
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
        there = f'it names "{first}"' if first else "it is empty"
        raise SaccadeError(f'{path} describes none of the {len(ids)} pictures: {there}, the first is "{ids[0]}"')
    return tuple(found)


def _read(path: Path) -> Iterator[Caption]:
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "jsonl" and _has_lists(path):
        for line in read_coco_file(path):
            for text in line.photo.texts:
                yield Caption(line.photo.name, text, line.photo.split)
    elif kind == "jsonl":
        yield from read_captions(path)
    elif kind == "json" and _is_coco(path):
        for photo in read_captions_file(path, ""):
            for text in photo.texts:
                yield Caption(photo.name, text)
    elif kind == "json":
        for image in read_karpathy(path):
            for sentence in image.sentences:
                yield Caption(image.filename, sentence.raw, image.split)
    else:
        for name, text in read_tokens(path):
            yield Caption(name, text)


def _has_lists(path: Path) -> bool:
    """Whether a line holds all sentences of a photo, as coco_mini's do; the first tells."""
    first = next(read_json_lines(path), (0, None))[1]
    return isinstance(first, dict) and "captions" in first


def _is_coco(path: Path) -> bool:
    values = read_json_file(path)
    return isinstance(values, dict) and "annotations" in values
