"""What every reader returns: a split of pictures with sentences, whatever file format it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from saccade.batch import RegionBatch
from saccade.errors import SaccadeError


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
    images: RegionSource
    texts: tuple[str, ...]
    image_of_text: np.ndarray  # int64 [text]: position in `images`
    eye: str | None = None  # what made the features, so that a model can be used on new pictures

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.image_of_text):
            raise SaccadeError(f"{self.name}/{self.split}: {len(self.texts)} texts, {len(self.image_of_text)} owners")
        if len(self.texts) and int(self.image_of_text.max()) >= len(self.images):
            raise SaccadeError(f"{self.name}/{self.split}: a text belongs to a picture that is not there")

    @cached_property
    def texts_of_image(self) -> tuple[tuple[int, ...], ...]:
        owned: list[list[int]] = [[] for _ in range(len(self.images))]
        for text, image in enumerate(self.image_of_text.tolist()):
            owned[image].append(text)
        return tuple(map(tuple, owned))
