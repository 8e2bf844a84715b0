"""How large the originals were, from elsewhere: feature files with boxes in pixels often do not say."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from saccade.data.lines import read_json_file, read_lines
from saccade.errors import SaccadeError

Sizes = Mapping[str, tuple[int, int]]  # (width, height) by picture id
NO_SIZES: Sizes = {}
NAMES = ("image", "id", "image_id", "cocoid", "filename", "file_name", "file_path")
BESIDE = ("sizes.tsv", "sizes.json")


def read_sizes(path: Path | str) -> Sizes:
    """A JSON file with a list `images` (COCO's annotations, cocotalk.json), or {"id": [width, height]}; or a table.

    A table is tab-separated with a header: a column image or id, and width and height (or orig_width, orig_height);
    .gz is fine. Pictures are known by id, file name, and file name without its ending.
    """
    path = Path(path)
    sizes: dict[str, tuple[int, int]] = {}
    for number, entry in enumerate(_entries(path), start=1):
        where = f"{path}, entry {number}"
        size = _whole(entry, "width", where), _whole(entry, "height", where)
        names = [str(entry[key]) for key in NAMES if entry.get(key) is not None]
        if not names:
            raise SaccadeError(f"{where}: no picture is named ({', '.join(NAMES[:4])} were looked for)")
        for name in names:
            sizes[name] = sizes[Path(name).name] = sizes[Path(name).stem] = size
    if not sizes:
        raise SaccadeError(f"{path} holds no sizes")
    return sizes


def find_sizes(path: Path) -> Sizes:
    """`sizes.tsv` or `sizes.json` in the folder of a feature file, or in the feature folder itself."""
    places = [folder / name for folder in ([path] if path.is_dir() else []) + [path.parent] for name in BESIDE]
    return next((read_sizes(place) for place in places if place.exists()), NO_SIZES)


def _entries(path: Path) -> Iterator[Mapping[str, Any]]:
    if ".json" in path.suffixes:
        yield from _json_entries(path)
        return
    for row in csv.DictReader((line for _, line in read_lines(path)), delimiter="\t", quoting=csv.QUOTE_NONE):
        yield {key.removeprefix("orig_"): value for key, value in row.items() if isinstance(key, str)}


def _json_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    value = read_json_file(path)
    entries = value.get("images") if isinstance(value, dict) and "images" in value else value
    if isinstance(entries, dict):
        pairs = [(k, v if isinstance(v, list) and len(v) == 2 else [None, None]) for k, v in entries.items()]
        entries = [{"id": key, "width": width, "height": height} for key, (width, height) in pairs]
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise SaccadeError(f'{path}: a list "images" with width and height was expected, or {{"id": [width, height]}}')
    yield from entries


def _whole(entry: Mapping[str, Any], key: str, where: str) -> int:
    text = str(entry.get(key))
    if not text.isdecimal() or len(text) > 9 or not int(text):
        raise SaccadeError(f"{where}: {key} is {entry.get(key)!r}, a number of pixels was expected")
    return int(text)
