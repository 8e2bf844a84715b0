"""Pictures made ready for the extractor: opened, shrunk, their boxes brought to 0..1. What cannot be read is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float32, UInt8

from saccade.core.errors import SaccadeError
from saccade.data.store.broken import Broken, printable
from saccade.vision import RegionExtractor, open_picture
from saccade.vision.boxes import as_boxes

SLACK = 2.0  # so many pixels outside the picture are somebody's rounding

Source: TypeAlias = "Path | Callable[[], np.ndarray]"  # a picture file, or what gives its pixels
Unit = Literal["fraction", "pixel"]


@dataclass(frozen=True)
class Opened:
    """A picture ready for the extractor."""

    id: str
    pixels: UInt8[np.ndarray, "row column 3"]
    width: int  # of the original
    height: int
    boxes: Float32[np.ndarray, "region 4"] | None  # in 0..1


@dataclass(frozen=True)
class Opener:
    """Opens a picture, shrinks it to what the extractor wants, and brings its boxes to 0..1. Runs in threads."""

    extractor: RegionExtractor
    boxes: Mapping[str, np.ndarray] | None
    unit: Unit
    sizes: Mapping[str, tuple[int, int]]

    def __call__(self, picture: tuple[str, Source]) -> Opened | Broken:
        id, source = picture
        path = printable(source) if isinstance(source, Path) else ""
        try:
            return self._open(id, source, path or id)
        except SaccadeError as error:
            return Broken(id, path, printable(error))
        except MemoryError as error:
            raise SaccadeError(f"there is too little memory to open {path or id}: use fewer workers") from error
        except Exception as error:  # a decoder met what its author did not think of: one file must not end the run
            return Broken(id, path, f"{path or id} could not be decoded ({type(error).__name__})")

    def _open(self, id: str, source: Source, name: str) -> Opened:
        if isinstance(source, Path):
            image = open_picture(source)
            (width, height), pixels = image.size, self.extractor.prepare(image, name)
        else:
            array = source()
            (height, width), pixels = array.shape[:2], self.extractor.prepare(array, name)
        width, height = self.sizes.get(id, (width, height))
        boxes = None
        if self.boxes is not None:
            given = self.boxes.get(id)
            if given is None or not len(given):
                raise SaccadeError(f"{name} has no boxes, which were to be given for every picture")
            boxes = _in_fractions(given, width, height, name) if self.unit == "pixel" else np.asarray(given)
            boxes = as_boxes(boxes, name).numpy()
        return Opened(id, pixels, width, height, boxes)


def _in_fractions(boxes: np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    pixels = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    sides = np.array([width, height, width, height], dtype=np.float64)
    wrong = ((pixels < -SLACK) | (pixels > sides + SLACK) | ~np.isfinite(pixels)).any(axis=1)
    if wrong.any():
        box = ", ".join(f"{x:g}" for x in pixels[int(wrong.argmax())])
        raise SaccadeError(f"{name}: the box ({box}) leaves the picture of {width} × {height} pixels")
    clipped: np.ndarray = np.clip(pixels / sides, 0, 1)
    return clipped
