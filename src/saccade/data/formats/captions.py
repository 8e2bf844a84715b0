"""Sentences from whatever file holds them: for pictures that are there, or to be scored against each other.

`captions_of` gives the sentences of known pictures under their ids, with their splits, from captions.jsonl as a store
has it, Karpathy's dataset*.json, COCO's captions*.json, coco_mini's annotations.jsonl, and lines
`photo.jpg#0<TAB>sentence` as Flickr8k and Flickr30k have them.

`read_caption_results` asks for less, an id and a sentence, and so reads more: COCO's results
[{"image_id", "caption"}, …] and COCO's captions {"images", "annotations"}, Karpathy's files, a plain mapping
{id: sentence or sentences}, JSON lines with `image_id` or `image` and `caption`, `text` or `captions`,
Flickr8k's captions.tsv and lines `photo.jpg#0<TAB>sentence`; all of them also gzipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.data.datasets.coco import read_captions_file, read_coco_lines
from saccade.data.datasets.flickr import read_tokens
from saccade.data.datasets.karpathy import read_karpathy
from saccade.data.records import Caption, other_names
from saccade.data.store.manifest import read_captions
from saccade.data.text_files import JsonEntry, read_items, read_json_file, read_json_lines, read_table


def captions_of(path: Path, ids: Iterable[str]) -> tuple[Caption, ...]:
    """The sentences of a file that describe these pictures, under their ids; those of other pictures are left out.

    Raises: SaccadeError if it describes none of them.
    """
    ids = list(ids)
    names = other_names(ids)
    first: str | None = None
    found = []
    for caption in _read_captions(path):
        first = first or caption.image
        if caption.image in names and caption.text.strip():
            found.append(Caption(names[caption.image], caption.text, caption.split))
    if not found:
        there = f'it names "{first}"' if first else "it is empty"
        raise SaccadeError(f'{path} describes none of the {len(ids)} pictures: {there}, the first is "{ids[0]}"')
    return tuple(found)


def _read_captions(path: Path) -> Iterator[Caption]:
    kind = _ending(path)
    first = next(read_json_lines(path), (0, None))[1] if kind == "jsonl" else None
    whole = read_json_file(path) if kind == "json" else None
    if isinstance(first, dict) and "captions" in first:  # a line holds all sentences of a photo, as coco_mini's do
        yield from (
            Caption(photo.name, text, photo.split) for photo, _ in read_coco_lines(path) for text in photo.texts
        )
    elif kind == "jsonl":
        yield from read_captions(path)
    elif isinstance(whole, dict) and "annotations" in whole:
        yield from (Caption(photo.name, text) for photo in read_captions_file(path, "") for text in photo.texts)
    elif kind == "json":
        images = read_karpathy(path)
        yield from (
            Caption(image.filename, sentence.raw, image.split) for image in images for sentence in image.sentences
        )
    else:
        yield from (Caption(name, text) for name, text in read_tokens(path))


def _ending(path: Path) -> str:
    return path.name.removesuffix(".gz").rpartition(".")[2]


@dataclass
class CaptionsOfPictures:
    """The sentences of each picture, by its id as text; a picture may be asked for by its file name too."""

    path: Path
    texts: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # file name → id

    def of(self, image: str) -> list[str] | None:
        short = PurePosixPath(image).name
        numbered = f"{image:0>12}.jpg" if image.isdecimal() else None  # what COCO calls the file of a picture's number
        for key in (image, self.names.get(image), short, self.names.get(short), numbered):
            if key is not None and key in self.texts:
                return self.texts[key]
        return None


def read_caption_results(path: Path) -> CaptionsOfPictures:
    """Whatever a file says of pictures."""
    found = CaptionsOfPictures(path)
    for image, text in _sentences(path, found.names):
        found.texts.setdefault(image, []).append(text)
    if not found.texts:
        raise SaccadeError(f'{path} holds no captions: a list of {{"image_id": …, "caption": …}} was expected')
    return found


def pair_captions(candidates: CaptionsOfPictures, references: CaptionsOfPictures) -> dict[str, tuple[str, list[str]]]:
    """For each picture that was captioned its caption and what people said."""
    paired: dict[str, tuple[str, list[str]]] = {}
    for image, texts in candidates.texts.items():
        if len(texts) > 1:
            raise SaccadeError(
                f'{candidates.path} has {len(texts)} captions of the picture "{image}", one was expected'
            )
        other = next((name for name, id in candidates.names.items() if id == image), image)
        wanted = references.of(image) or references.of(other)
        if wanted is None:
            raise SaccadeError(
                f'{references.path} has no captions of the picture "{image}" of {candidates.path} '
                f'(it has those of "{next(iter(references.texts))}", for one)'
            )
        paired[image] = texts[0], wanted
    return paired


def _sentences(path: Path, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(picture, sentence) of each sentence; file names that go with ids are noted in `names`."""
    kind = _ending(path)
    if kind == "jsonl":
        for line, value in read_json_lines(path):
            yield from _entry(value, f"{path}, line {line}")
    elif kind == "tsv":
        for _, (image, _, caption) in read_table(path, ("image", "n", "caption")):
            yield image, caption
    elif kind == "json":
        mapped, described = [], False
        for key, position, item in read_items(path):
            where = f"{path}, {key}[{position}]" if key else f"{path}, item {position}"
            if key == "images" and isinstance(item, dict):
                described = True
                yield from _image(JsonEntry.of(item, where), names)
            elif key in ("", "annotations"):
                described = True
                yield from _entry(item, where)
            elif isinstance(item, str):  # {id: sentence} and {id: [sentences]}
                mapped.append((key, item))
        if not described:  # else they are of the file, as "type" is in COCO's and "dataset" in Karpathy's
            yield from mapped
    else:
        yield from read_tokens(path)


def _image(entry: JsonEntry, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """An image of COCO's list, which gives a name to an id, or of Karpathy's, which holds its sentences."""
    if "sentences" in entry:
        name = entry.text("filename")
        for key in ("cocoid", "imgid"):
            if key in entry:
                names.setdefault(str(entry.whole(key)), name)
                break
        for number, sentence in enumerate(entry.list("sentences")):
            yield name, JsonEntry.of(sentence, f"{entry.where}, sentence {number}").text("raw")
    elif "file_name" in entry and "id" in entry:
        names[entry.text("file_name")] = str(entry.whole("id"))


def _entry(value: Any, where: str) -> Iterator[tuple[str, str]]:
    entry = JsonEntry.of(value, where)
    image = next((entry.values[key] for key in ("image_id", "image") if key in entry), None)
    if isinstance(image, bool) or not isinstance(image, str | int) or image == "":
        raise SaccadeError(f'{where}: "image_id" must be the id of a picture, a number or text')
    if "captions" in entry:
        yield from ((str(image), text) for text in entry.texts("captions"))
    else:
        yield str(image), entry.text("text" if "text" in entry and "caption" not in entry else "caption")
