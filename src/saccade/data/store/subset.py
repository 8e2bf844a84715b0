"""Part of a source, and part of a split, without copying anything."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.formats.picture import PictureRegions, PictureSource, pad_pictures, picture_of
from saccade.data.records import CaptionedImages, RegionSource


class RegionSubset:
    """The pictures of `source` at `positions`, in that order."""

    def __init__(self, source: RegionSource, positions: Sequence[int]) -> None:
        self.source = source
        self.positions = tuple(int(p) for p in positions)

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(self.source.ids[p] for p in self.positions)

    @property
    def dim(self) -> int:
        return self.source.dim

    def __len__(self) -> int:
        return len(self.positions)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        return self.source.batch([self.positions[i] for i in indices])

    def get(self, index: int) -> PictureRegions:
        return picture_of(self.source, self.positions[index])


class ChainedPictures:
    """Several sources of one dim, one after the other."""

    def __init__(self, sources: Sequence[PictureSource]) -> None:
        self.sources = tuple(sources)
        dims = {s.dim for s in self.sources}
        if len(dims) != 1:
            raise SaccadeError(f"features of different widths ({', '.join(map(str, sorted(dims)))}) cannot be joined")
        self._ends = list(accumulate(len(s) for s in self.sources))

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(id for s in self.sources for id in s.ids)

    @property
    def dim(self) -> int:
        return self.sources[0].dim

    def __len__(self) -> int:
        return self._ends[-1]

    def get(self, index: int) -> PictureRegions:
        number = bisect_right(self._ends, index)
        return self.sources[number].get(index - (self._ends[number - 1] if number else 0))

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        return pad_pictures([self.get(i) for i in indices], self.dim)


def first_images(data: CaptionedImages, count: int) -> CaptionedImages:
    """The first `count` pictures of a split, with their sentences."""
    if count < 1:
        raise SaccadeError(f"a limit of {count} pictures leaves nothing to read")
    if count >= len(data.images):
        return data
    kept = np.flatnonzero(data.image_of_text < count)
    return CaptionedImages(
        name=data.name,
        split=data.split,
        images=RegionSubset(data.regions, range(count)),
        texts=tuple(data.texts[i] for i in kept),
        image_of_text=data.image_of_text[kept],
        extractor=data.extractor,
    )
