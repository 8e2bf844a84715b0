"""Sentences from whatever file holds them: for pictures that are there, or to be scored against each other.

`captions_of` gives the sentences of known pictures under their ids, with their splits, from any of `FORMATS`. A table
is comma-separated as spreadsheets write it (quotes, line feeds within them) or tab-separated (quotes mean themselves).
Its first row may name the columns, of which image and caption are needed, split is optional and others are passed over;
without names they are image, caption and perhaps split, or image, a number and caption.

`read_caption_results` asks for less, an id and a sentence, and so reads more: COCO's results
[{"image_id", "caption"}, …] and COCO's captions {"images", "annotations"}, Karpathy's files, a plain mapping
{id: sentence or sentences}, JSON lines with `image_id` or `image` and `caption`, `text` or `captions`, the same tables
and lines `photo.jpg#0<TAB>sentence`. All of them may be gzipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.coco import read_captions_file, read_coco_lines
from saccade.data.datasets.photos.flickr import read_tokens
from saccade.data.datasets.photos.karpathy import read_karpathy
from saccade.data.records import Caption, other_names
from saccade.data.store.manifest import read_captions
from saccade.data.text_files import JsonEntry, open_text, read_items, read_json_file, read_json_lines, read_lines

FORMATS = (
    "captions come as a table image,caption[,split] (.csv, .tsv), captions.jsonl, Karpathy's dataset*.json, COCO's "
    "captions*.json, coco_mini's annotations.jsonl, or lines photo.jpg#0<TAB>sentence; also gzipped"
)


def captions_of(path: Path, ids: Iterable[str]) -> tuple[Caption, ...]:
    """The sentences of a file that describe these pictures, under their ids; those of other pictures are left out.

    Raises: SaccadeError if it describes none of them.
    """
    ids = list(ids)
    names = other_names(ids)
    first: str | None = None
    found = []
    for caption in read_caption_file(path):
        first = first or caption.image
        if caption.image in names and caption.text.strip():
            found.append(Caption(names[caption.image], caption.text, caption.split))
    if not found:
        there = f'it names "{first}"' if first else "it is empty"
        raise SaccadeError(f'{path} describes none of the {len(ids)} pictures: {there}, the first is "{ids[0]}"')
    return tuple(found)


def read_caption_file(path: Path) -> Iterator[Caption]:
    """The sentences of a file in any of `FORMATS`, each with its picture and split.

    Raises: SaccadeError if it is of no known format.
    """
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
    elif isinstance(whole, dict) and "images" in whole:
        images = read_karpathy(path)
        yield from (
            Caption(image.filename, sentence.raw, image.split) for image in images for sentence in image.sentences
        )
    elif kind == "json":
        raise SaccadeError(f"{path} holds no captions that are known: {FORMATS}")
    else:
        yield from _read_rows(path)


IMAGE_COLUMNS = ("image", "image_id", "image_name", "filename", "file_name", "file", "photo", "id")
TEXT_COLUMNS = ("caption", "text", "sentence")


def _read_rows(path: Path) -> Iterator[Caption]:
    """A table with commas or tabs, or lines photo.jpg#0<TAB>sentence: told by the ending and the first line."""
    kind, first = _ending(path), next((line for _, line in read_lines(path) if line.strip()), "")
    if not first:
        return
    if re.match(r"[^\t]+#\d+\s*\t", first):
        yield from (Caption(name, text) for name, text in read_tokens(path))
    elif kind == "csv" or _columns(first.split(",")) is not None:
        yield from _read_table(path, _csv_rows(path))
    elif kind == "tsv" or _columns(first.split("\t")) is not None:
        yield from _read_table(path, ((number, line.split("\t")) for number, line in read_lines(path) if line.strip()))
    else:
        raise SaccadeError(f"{path}, line 1: {first[:60]!r} is no caption that is known: {FORMATS}")


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    with open_text(path) as file:
        rows = csv.reader(file, strict=True)
        try:
            yield from ((rows.line_num, row) for row in rows if any(cell.strip() for cell in row))
        except csv.Error as error:
            raise SaccadeError(f"{path}, line {rows.line_num}: not comma-separated as expected ({error})") from error


def _columns(row: Sequence[str]) -> tuple[int, int, int | None] | None:
    """Where image, caption and split stand in a row of names; None if it holds no such names."""
    names = [cell.strip(' "').lower() for cell in row]
    image, text = (next((names.index(n) for n in known if n in names), None) for known in (IMAGE_COLUMNS, TEXT_COLUMNS))
    if image is None or text is None:
        return None
    return image, text, names.index("split") if "split" in names else None


def _read_table(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[Caption]:
    number, head = next(rows)
    columns, width = _columns(head), len(head)
    if columns is None:
        if width not in (2, 3):
            raise SaccadeError(f"{path}, line {number}: {width} columns, image,caption[,split] was expected; {FORMATS}")
        numbered = width == 3 and head[1].strip().isdecimal()
        columns = (0, 2, None) if numbered else (0, 1, 2 if width == 3 else None)
        rows = chain([(number, head)], rows)
    image, text, split = columns
    for number, row in rows:
        if len(row) != width:
            raise SaccadeError(
                f"{path}, line {number}: {len(row)} columns, {width} were expected (a caption with a comma in it "
                "stands in quotes)"
            )
        if not row[image].strip():
            raise SaccadeError(f"{path}, line {number}: no picture is named")
        part = row[split].strip() if split is not None else ""
        yield Caption(row[image].strip(), " ".join(row[text].split()), part or None)


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
        raise SaccadeError(
            f'{path} holds no captions: COCO\'s results [{{"image_id": …, "caption": …}}] were expected; {FORMATS}'
        )
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
        yield from ((caption.image, caption.text) for caption in _read_rows(path))


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
