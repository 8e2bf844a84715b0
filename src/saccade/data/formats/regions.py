"""What every feature format shares: regions checked and padded; sizes of the originals and boxes from files.

Feature files with boxes in pixels often do not say how large the pictures were: `read_sizes` takes it from elsewhere.

`read_boxes` reads regions that somebody else found, for an extractor to describe: {"unit": "pixel", "photo.jpg":
[[x1, y1, x2, y2], …], …}, where "unit" may be left out or be "fraction" (of width and height, 0..1); or an annotation
file in the style of COCO, with "images" and "annotations".
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float16, Float32

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.data.records import other_names
from saccade.data.text_files import JsonEntry, as_number, numbers_text, read_json_file, read_lines

WHOLE_IMAGE = np.array([0.0, 0.0, 1.0, 1.0], dtype=np.float32)  # stands in for boxes that a format threw away
BOX_ROUNDING = 1e-5  # how far a box may leave 0..1 through float32 rounding and still be clipped, not refused
ONE_THREAD_VALUES = 2**15  # so many PyTorch converts without its pool of threads

Sizes = Mapping[str, tuple[int, int]]  # (width, height) by picture id
NO_SIZES: Sizes = {}
NAME_KEYS = ("image", "id", "image_id", "cocoid", "filename", "file_name", "file_path")
SIZE_FILES = ("sizes.tsv", "sizes.json")  # beside a feature file


def position(index: int, count: int, where: object) -> int:
    """`index` as a place in 0..count-1; negative counts from the end. Raises: SaccadeError if it is out of range."""
    if not -count <= index < count:
        raise SaccadeError(f"{where} has {count} pictures, there is no number {index}")
    return int(index) % count


def check_boxes(boxes: np.ndarray, where: str) -> Float32[np.ndarray, "region 4"]:
    """`boxes` as float32 inside 0..1. Raises: SaccadeError, which starts with `where`, if they are not."""
    boxes = np.asarray(boxes)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise SaccadeError(f"{where}: boxes have shape {list(boxes.shape)}, [regions, 4] was expected")
    if not np.isfinite(boxes).all():
        raise SaccadeError(f"{where}: a box holds NaN or infinity")
    if len(boxes) and (boxes.min() < -BOX_ROUNDING or boxes.max() > 1 + BOX_ROUNDING):
        worst = boxes[int(np.argmax(np.maximum(-boxes, boxes - 1).max(axis=1)))]
        raise SaccadeError(
            f"{where}: the box {numbers_text(worst)} leaves 0..1 (boxes are x1, y1, x2, y2 divided by width and height)"
        )
    backwards = (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
    if backwards.any():
        raise SaccadeError(f"{where}: the box {numbers_text(boxes[int(backwards.argmax())])} ends before it begins")
    clipped: np.ndarray = np.clip(boxes, 0.0, 1.0).astype(np.float32)
    return clipped


def check_features(features: np.ndarray, dim: int, dtype: str, where: str) -> np.ndarray:
    """Finite `features` [region, dim] of `dtype`. Raises: SaccadeError, which starts with `where`, if they are not."""
    features = np.asarray(features)
    if features.ndim != 2 or features.shape[1] != dim:
        raise SaccadeError(f"{where}: features have shape {list(features.shape)}, [regions, {dim}] was expected")
    if features.dtype.kind not in "fiu":
        raise SaccadeError(f"{where}: features are {features.dtype}, numbers were expected")
    if features.dtype == np.float16:  # without their sign, halves are ordered as their bits are, a hundred times faster
        largest = (features.view(np.uint16) & 0x7FFF).max(initial=0).view(np.float16)
    else:
        largest = np.maximum(features.max(initial=0), -float(features.min(initial=0)))
    if not np.isfinite(largest):  # both come through a maximum
        raise SaccadeError(f"{where}: the features hold NaN or infinity")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.asarray(largest).astype(dtype)):
            raise SaccadeError(f"{where}: the feature value {float(largest):g} does not fit into {dtype}")
    if features.dtype == np.float32 and dtype == "float16" and features.flags.carray:  # views of files are not
        return _as_half(features)
    return features.astype(dtype)


def _as_half(features: Float32[np.ndarray, "region dim"]) -> Float16[np.ndarray, "region dim"]:
    """Rounded as NumPy does it, many times as quickly; in this thread alone, since others may be using all cores."""
    values = torch.from_numpy(features).flatten()
    half = torch.empty(values.shape, dtype=torch.float16)
    pieces = (torch.split(whole, ONE_THREAD_VALUES) for whole in (values, half))
    for piece, rounded in zip(*pieces, strict=True):
        rounded.copy_(piece)
    return half.view(features.shape).numpy()


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
        names = [str(entry[key]) for key in NAME_KEYS if entry.get(key) is not None]
        if not names:
            raise SaccadeError(f"{where}: no picture is named ({', '.join(NAME_KEYS[:4])} were looked for)")
        for name in names:
            sizes[name] = sizes[Path(name).name] = sizes[Path(name).stem] = size
    if not sizes:
        raise SaccadeError(f"{path} holds no sizes")
    return sizes


def find_sizes(path: Path) -> Sizes:
    """`sizes.tsv` or `sizes.json` in the folder of a feature file, or in the feature folder itself."""
    places = [folder / name for folder in ([path] if path.is_dir() else []) + [path.parent] for name in SIZE_FILES]
    return next((read_sizes(place) for place in places if place.exists()), NO_SIZES)


def _entries(path: Path) -> Iterator[Mapping[str, Any]]:
    if ".json" in path.suffixes:
        yield from _json_entries(path)
        return
    try:
        for row in csv.DictReader((line for _, line in read_lines(path)), delimiter="\t", quoting=csv.QUOTE_NONE):
            yield {key.removeprefix("orig_"): value for key, value in row.items() if isinstance(key, str)}
    except csv.Error as error:
        raise SaccadeError(f"{path} is not a tab-separated table: {error}") from error


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


Unit = Literal["fraction", "pixel"]
UNITS: tuple[Unit, ...] = ("pixel", "fraction")


@dataclass(frozen=True)
class GivenBoxes:
    """Boxes x1 y1 x2 y2 by the picture's name; `sizes` are the originals' (width, height), where the file has them."""

    boxes: dict[str, np.ndarray]
    unit: Unit = "pixel"
    sizes: dict[str, tuple[int, int]] | None = None

    def of(self, ids: Iterable[str], path: Path) -> GivenBoxes:
        """Under the ids of these pictures, where it has them; it must have one. What it has of others stays."""
        ids = list(ids)
        names = other_names(ids)
        if not any(name in names for name in self.boxes):
            there = f'it names "{next(iter(self.boxes))}"' if self.boxes else "it is empty"
            raise SaccadeError(
                f'{path} has boxes for none of the {len(ids)} pictures: {there}, the first is "{ids[0]}"'
            )
        sizes = {names.get(name, name): size for name, size in (self.sizes or {}).items()}
        return replace(self, boxes={names.get(name, name): found for name, found in self.boxes.items()}, sizes=sizes)


def read_boxes(path: Path) -> GivenBoxes:
    values = read_json_file(path)
    if not isinstance(values, dict):
        raise SaccadeError(
            f'{path} must hold {{"photo.jpg": [[x1, y1, x2, y2], …], …}} or annotations as COCO has them'
        )
    if "images" in values and "annotations" in values:
        return _read_coco(JsonEntry(values, str(path)))
    unit = values.pop("unit", "pixel")
    if unit not in UNITS:
        near = did_you_mean(unit, UNITS) if isinstance(unit, str) else ""
        raise SaccadeError(f'{path}: "unit" is {unit!r}, "pixel" or "fraction" was expected{near}')
    return GivenBoxes({name: _boxes(rows, f'{path}, "{name}"') for name, rows in values.items()}, unit)


def _boxes(rows: Any, where: str) -> np.ndarray:
    if not isinstance(rows, list):
        raise SaccadeError(f"{where}: a list of boxes [x1, y1, x2, y2] was expected")
    return np.array([_four(row, f"{where}, box {n}") for n, row in enumerate(rows)], np.float32).reshape(-1, 4)


def _four(row: Any, where: str) -> list[float]:
    if not isinstance(row, list) or len(row) != 4:
        raise SaccadeError(f"{where}: four numbers were expected, not {str(row)[:60]}")
    x1, y1, x2, y2 = (as_number(value, where) for value in row)
    if x2 <= x1 or y2 <= y1:
        raise SaccadeError(f"{where}: [{x1:g}, {y1:g}, {x2:g}, {y2:g}] is empty, x1 < x2 and y1 < y2 were expected")
    return [x1, y1, x2, y2]


def _read_coco(file: JsonEntry) -> GivenBoxes:
    """`bbox` is x, y, width, height; crowds are no single thing and are left out."""
    names: dict[int, str] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for image in file.entries("images"):
        name = names[image.whole("id")] = image.text("file_name")
        if "width" in image and "height" in image:
            sizes[name] = image.whole("width", least=1), image.whole("height", least=1)
    boxes: dict[str, list[list[float]]] = {}
    for annotation in file.entries("annotations"):
        if annotation.values.get("iscrowd") or "bbox" not in annotation:
            continue
        owner = annotation.whole("image_id")
        if owner not in names:
            raise SaccadeError(f'{annotation.where}: no picture has the id {owner} that "image_id" names')
        x, y, width, height = annotation.numbers("bbox", ("x", "y", "width", "height"))
        corners = [x, y, x + width, y + height]
        boxes.setdefault(names[owner], []).append(_four(corners, f"{annotation.where}.bbox"))
    return GivenBoxes({name: np.array(rows, np.float32) for name, rows in boxes.items()}, "pixel", sizes)
