"""A dense captioner with photos instead of tensors: a phrase for every part that is worth one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy import ndarray as Array
from PIL import Image

from saccade.batch import PictureBatch
from saccade.core.config import update
from saccade.core.errors import SaccadeError
from saccade.data.store.manifest import Broken
from saccade.decoding import DecodingConfig
from saccade.explain.panels.regions import RegionPicture
from saccade.models import DenseCap
from saccade.tasks.dense_captioning.evaluate import DECODING, DensePhrase, describe
from saccade.tasks.predict import Predictor, listed
from saccade.vision import open_picture
from saccade.vision.pictures import Picture, as_array

BATCH_SIZE = 8  # photos of any size in memory at a time


@dataclass(frozen=True, eq=False)
class DescribedPhoto:
    """A photo file, its size in pixels, and what was said of its parts."""

    file: Path
    width: int
    height: int
    regions: tuple[DensePhrase, ...]
    picture: UInt8[Array, "row column 3"]  # made smaller, to be drawn on

    def boxes(self) -> list[list[float]]:
        """In pixels."""
        scale = (self.width, self.height, self.width, self.height)
        return [[round(side * length, 1) for side, length in zip(r.box, scale, strict=True)] for r in self.regions]

    def facts(self, model: str) -> dict[str, Any]:
        """For JSON."""
        regions = [
            {"phrase": region.phrase, "score": round(region.score, 4), "box": box}
            for region, box in zip(self.regions, self.boxes(), strict=True)
        ]
        size = {"width": self.width, "height": self.height}
        return {"photo": str(self.file), "model": model, **size, "regions": regions}

    @property
    def drawing(self) -> RegionPicture:
        """Boxes and phrases on the photo."""
        return drawn(self.picture, self.regions, self.file.name)


class PictureDescriber(Predictor[DenseCap]):
    """A trained dense captioner: pictures in, phrases with boxes out."""

    def describe(
        self,
        images: Picture | Sequence[Picture],
        top: int = 20,
        least: float = 0.1,
        decoding: DecodingConfig = DECODING,
        **options: Any,
    ) -> list[list[DensePhrase]]:
        """The `top` regions of each picture that the model is surest of, none of them less sure than `least`.

        Pictures are paths, Pillow images or arrays; `options` are DecodingConfig's: `strategy="beam", num_beams=3` …
        """
        settings = update(decoding, options, "decoding")
        given = listed(images)
        parts = (given[start : start + BATCH_SIZE] for start in range(0, len(given), BATCH_SIZE))
        return [described for part in parts for described in self._describe(part, top, least, settings)]

    def draw(self, image: Picture, top: int = 20, least: float = 0.1, title: str = "", **options: Any) -> RegionPicture:
        """Boxes and phrases on a picture: `.save("phrases.png")`."""
        picture = as_array(image)
        return drawn(picture, self.describe([picture], top, least, **options)[0], title)

    def describe_photos(
        self, files: Sequence[Path], top: int, least: float, decoding: DecodingConfig, drawn_side: int
    ) -> Iterator[DescribedPhoto | Broken]:
        """Photo files in order, each opened once; one that cannot be read comes back as broken."""
        for start in range(0, len(files), BATCH_SIZE):
            opened = {file: _opened(file) for file in files[start : start + BATCH_SIZE]}
            pictures = [one for one in opened.values() if isinstance(one, Image.Image)]
            described = iter(self._describe(pictures, top, least, decoding) if pictures else ())
            for file, one in opened.items():
                if isinstance(one, Broken):
                    yield one
                    continue
                size = one.size
                one.thumbnail((drawn_side, drawn_side))
                yield DescribedPhoto(file, *size, tuple(next(described)), np.asarray(one))

    def _describe(
        self, pictures: Sequence[Picture], top: int, least: float, decoding: DecodingConfig
    ) -> list[list[DensePhrase]]:
        size = self.model.config.size
        pixels = np.stack([as_array(picture, size=size) for picture in pictures])
        described = describe(self.model, PictureBatch(torch.from_numpy(pixels)), top, decoding)
        return [[region for region in regions if region.score >= least] for regions in described]


def _opened(file: Path) -> Image.Image | Broken:
    try:
        return open_picture(file)
    except SaccadeError as error:
        return Broken(file.name, str(file), str(error))


def drawn(picture: UInt8[Array, "row column 3"], regions: Sequence[DensePhrase], title: str) -> RegionPicture:
    boxes = np.array([region.box for region in regions], dtype=np.float64).reshape(-1, 4)
    labels, scores = tuple(region.phrase for region in regions), np.array([region.score for region in regions])
    return RegionPicture(picture, boxes, labels, scores, title)
