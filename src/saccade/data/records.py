"""What every reader returns: a split of pictures with sentences, whatever file format it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np
import torch
from jaxtyping import Float32, Int
from torch import Tensor

from saccade.batch import PictureBatch, RegionBatch
from saccade.core.errors import SaccadeError


class ImageSource(Protocol):
    """Pictures read on demand (never loaded whole), as regions or as pixels."""

    @property
    def ids(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> RegionBatch | PictureBatch: ...


class RegionSource(Protocol):
    """Region features of many pictures, read on demand (never loaded whole)."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def dim(self) -> int: ...

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> RegionBatch: ...


@dataclass(frozen=True)
class CaptionedImages:
    """One split for matching: region features, sentences, and which picture each sentence describes."""

    name: str
    split: str
    images: ImageSource
    texts: tuple[str, ...]
    image_of_text: np.ndarray  # int64 [text]: position in `images`
    extractor: str | None = None  # what made the features, so that a model can be used on new pictures

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.image_of_text):
            raise SaccadeError(f"{self.name}/{self.split}: {len(self.texts)} texts, {len(self.image_of_text)} owners")
        if len(self.texts) and int(self.image_of_text.max()) >= len(self.images):
            raise SaccadeError(f"{self.name}/{self.split}: a text belongs to a picture that is not there")

    @property
    def regions(self) -> RegionSource:
        """The pictures as regions; a split of pixels has none."""
        if not hasattr(self.images, "dim"):
            raise SaccadeError(f"{self.name}/{self.split} holds pixels, regions were expected")
        return cast(RegionSource, self.images)

    @cached_property
    def texts_of_image(self) -> tuple[tuple[int, ...], ...]:
        owned: list[list[int]] = [[] for _ in range(len(self.images))]
        for text, image in enumerate(self.image_of_text.tolist()):
            owned[image].append(text)
        return tuple(map(tuple, owned))

    def pairs(
        self, indices: Sequence[int], items: Literal["pairs", "pictures"]
    ) -> tuple[list[int], Int[np.ndarray, " image"], Int[Tensor, " text"]]:
        """The sentences and pictures of a training batch, and which of its pictures each sentence describes.

        `indices` are sentences, each with its picture; or pictures, each once with all its sentences.
        """
        if items == "pairs":
            return list(indices), self.image_of_text[list(indices)], torch.arange(len(indices))
        owned = [self.texts_of_image[i] for i in indices]
        owner = torch.arange(len(owned)).repeat_interleave(torch.tensor([len(own) for own in owned]))
        return [text for own in owned for text in own], np.asarray(indices), owner


@dataclass(frozen=True)
class CaptionedPhotos:
    """One split that nothing has looked at yet: picture files, sentences, and which picture each describes.

    `open_split` lets the extractor `data.extractor` see them, once, into the cache; or gives pixels when the extractor
    itself is trained.
    """

    name: str
    split: str
    ids: tuple[str, ...]
    paths: tuple[Path, ...]
    texts: tuple[str, ...]
    image_of_text: np.ndarray  # int64 [text]: position in `paths`
    sizes: tuple[tuple[int, int], ...] = ()  # (width, height) of the originals, where the files were made smaller

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.paths) or (self.sizes and len(self.sizes) != len(self.paths)):
            raise SaccadeError(f"{self.name}/{self.split}: {len(self.paths)} pictures but {len(self.ids)} ids")
        if len(self.texts) != len(self.image_of_text):
            raise SaccadeError(f"{self.name}/{self.split}: {len(self.texts)} texts, {len(self.image_of_text)} owners")


@dataclass(frozen=True)
class BoxedPicture:
    """A picture file with named boxes: what a region detector learns from, whatever data set it came from."""

    id: str
    path: Path
    width: int  # pixels of the original
    height: int
    boxes: Float32[np.ndarray, "thing 4"]  # x1, y1, x2, y2 in 0..1
    names: tuple[str, ...]  # what each box holds: "dog"
    attributes: tuple[tuple[str, ...], ...]  # what it is like: ("brown", "wet"); may be empty
