"""Boxes from a file: regions that somebody else found, for an extractor to look at.

{"unit": "pixel", "photo.jpg": [[x1, y1, x2, y2], …], …}, where "unit" may be left out or be "fraction" (of width and
height, 0..1); or an annotation file in the style of COCO, with "images" and "annotations".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.data.records import other_names
from saccade.data.text.json import Entry, as_number, read_json_file

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
        return _read_coco(Entry(values, str(path)))
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


def _read_coco(file: Entry) -> GivenBoxes:
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
