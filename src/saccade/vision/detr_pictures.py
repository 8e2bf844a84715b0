"""How a detector of transformers wants its pictures, read from the `preprocessor_config.json` beside its weights.

The library's own image processors need torchvision in their quick form and change from release to release; what they do
to a picture is a resize, a scale and a shift, and Pillow and PyTorch do these here with the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.files import read_json

SMALLEST = 16  # pixels: a sliver of a picture is widened to this, so that no network runs out of cells
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class PictureForm:
    """Size, scale and shift of the pictures a network was trained on."""

    fixed: tuple[int, int] | None = None  # height, width: pictures are stretched to it
    shortest: int | None = None  # the shorter side, unless that makes the longer one longer than …
    longest: int | None = None
    within: tuple[int, int] | None = None  # the largest size inside this height and width
    resample: int = Image.Resampling.BILINEAR.value
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """What a picture of this height and width is resized to."""
        wanted = height, width = max(height, SMALLEST), max(width, SMALLEST)
        short, long = float(min(wanted)), float(max(wanted))
        if self.fixed is not None:
            wanted = self.fixed
        elif self.within is not None:
            factor = min(self.within[0] / height, self.within[1] / width)
            wanted = int(height * factor), int(width * factor)
        elif self.shortest is not None:
            side = float(self.shortest)
            if self.longest is not None and long / short * side > self.longest:
                side = self.longest * short / long
            if round(side) != min(height, width):
                other = int(side * long / short)
                wanted = (round(side), other) if height <= width else (other, round(side))
        if self.fixed is None and abs(wanted[0] - height) <= 1 and abs(wanted[1] - width) <= 1:
            wanted = height, width  # a picture that has been through here stays as it is
        return max(wanted[0], SMALLEST), max(wanted[1], SMALLEST)

    def resize(self, picture: UInt8[np.ndarray, "row column 3"]) -> UInt8[np.ndarray, "row column 3"]:
        height, width = self.size(*picture.shape[:2])
        if (height, width) == picture.shape[:2]:
            return picture
        return np.array(Image.fromarray(picture).resize((width, height), Image.Resampling(self.resample)))

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        mean, std = (pixels.new_tensor(v, dtype=torch.float32) for v in (self.mean, self.std))
        return ((pixels.float() * self.scale - mean) / std).permute(0, 3, 1, 2).contiguous()


def read_form(path: Path) -> PictureForm:
    """The form in a `preprocessor_config.json`; a field that is not what it should be gets a sentence."""
    values = read_json(path)
    if isinstance(values, dict) and isinstance(values.get("image_processor"), dict):
        values = values["image_processor"]  # as newer releases write it
    if not isinstance(values, dict):
        raise SaccadeError(f"{path} must hold an object with size, image_mean and image_std")
    sides: dict[str, Any] = {}
    if values.get("do_resize", True):
        sides = _sides(values.get("size"), values.get("max_size"), path)
    resample = values.get("resample", Image.Resampling.BILINEAR.value)
    if resample not in [r.value for r in Image.Resampling]:
        raise SaccadeError(f"{path}: resample is {resample!r}, a number from 0 to 5 was expected")
    scale = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1.0
    if not isinstance(scale, int | float) or not 0 < scale < 100:
        raise SaccadeError(f"{path}: rescale_factor is {scale!r}, a number such as 0.00392 was expected")
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if values.get("do_normalize", True):
        mean = _three(values.get("image_mean", IMAGENET[0]), "image_mean", path)
        std = _three(values.get("image_std", IMAGENET[1]), "image_std", path)
        if min(std) <= 0:
            raise SaccadeError(f"{path}: image_std is {list(std)}, numbers above zero were expected")
    return PictureForm(**sides, resample=int(resample), scale=float(scale), mean=mean, std=std)


def _sides(size: Any, longest: Any, path: Path) -> dict[str, Any]:
    """The fields of a PictureForm that say how large; older files have a number and `max_size`."""
    if isinstance(size, int) and not isinstance(size, bool):
        size = {"shortest_edge": size, "longest_edge": longest or 1333}
    given = size if isinstance(size, dict) else {}
    numbers = {k: v for k, v in given.items() if isinstance(v, int) and not isinstance(v, bool) and 0 < v <= 10_000}
    if {"height", "width"} <= numbers.keys():
        return {"fixed": (numbers["height"], numbers["width"])}
    if {"max_height", "max_width"} <= numbers.keys():
        return {"within": (numbers["max_height"], numbers["max_width"])}
    if "shortest_edge" in numbers:
        return {"shortest": numbers["shortest_edge"], "longest": numbers.get("longest_edge")}
    raise SaccadeError(
        f"{path}: size is {size!r}, whole numbers for height and width, for shortest_edge and longest_edge, or for "
        "max_height and max_width were expected"
    )


def _three(value: Any, name: str, path: Path) -> tuple[float, float, float]:
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(isinstance(v, int | float) for v in value):
        raise SaccadeError(f"{path}: {name} is {value!r}, three numbers were expected")
    return float(value[0]), float(value[1]), float(value[2])
