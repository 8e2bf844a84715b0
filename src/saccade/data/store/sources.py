"""Chains of region sources, sources held in memory, and the split of a store that its captions name.

`data=store root=FOLDER` is a feature store with `captions.jsonl`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from saccade.batch import RegionBatch, stack
from saccade.core.errors import SaccadeError
from saccade.data.records import Caption, CaptionedImages, CaptionedPhotos, PictureRegions, RegionSource, RegionSubset
from saccade.data.registry import chosen_splits, need_root
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.manifest import CAPTIONS, MANIFEST

Split = TypeVar("Split", CaptionedImages, CaptionedPhotos)

READ_AT_ONCE = 256  # pictures, when a whole source is read into memory


class ChainedRegions(RegionSource):
    """Several sources of one dim, one after the other."""

    def __init__(self, sources: Sequence[RegionSource]) -> None:
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

    def get(self, index: int) -> PictureRegions:
        number = bisect_right(self._ends, index)
        return self.sources[number].get(index - (self._ends[number - 1] if number else 0))


class RegionsInMemory:
    """A source read once and kept, on the training device if wanted: a batch is then one selection."""

    def __init__(self, source: RegionSource, device: torch.device | str = "cpu") -> None:
        self.ids, self.dim = tuple(source.ids), source.dim
        parts = [range(i, min(i + READ_AT_ONCE, len(source))) for i in range(0, len(source), READ_AT_ONCE)]
        whole = stack([source.batch(list(part)) for part in parts])
        self.counts = whole.mask.sum(dim=1)  # on the CPU: to ask a GPU would be to wait for it
        self.all = whole.to(device)

    def __len__(self) -> int:
        return len(self.all)

    def get(self, index: int) -> PictureRegions:
        """One picture; its size is unknown, since batches do not carry it."""
        one = self.batch([index]).to("cpu")
        return PictureRegions(self.ids[index], one.features[0].numpy(), one.boxes[0].numpy())

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        """The pictures at `indices`, without the padding that the longest of them does not need."""
        longest = int(self.counts[list(indices)].max()) if len(indices) else 0
        return self.all.select(indices).resize(region=longest)


def held_in_memory(data: CaptionedImages, device: torch.device | str = "cpu") -> CaptionedImages:
    """The split with its regions read once and kept; a split of pixels stays as it is."""
    if not len(data.images) or not hasattr(data.images, "dim"):
        return data
    return replace(data, images=RegionsInMemory(data.regions, device))


def first_images(data: Split, count: int) -> Split:
    """The first `count` pictures of a split, with their sentences."""
    if count < 1:
        raise SaccadeError(f"a limit of {count} pictures leaves nothing to read")
    kept = np.flatnonzero(data.image_of_text < count)
    fewer: dict[str, Any] = {"texts": tuple(data.texts[i] for i in kept), "image_of_text": data.image_of_text[kept]}
    if isinstance(data, CaptionedPhotos):
        fewer |= {"ids": data.ids[:count], "paths": data.paths[:count], "sizes": data.sizes[:count]}
    elif count < len(data.images):
        fewer["images"] = RegionSubset(data.regions, range(count))
    return replace(data, **fewer)


def open_store(split: str, root: Path | None) -> CaptionedImages:
    """The pictures that have a caption of this split or sum of splits ("train+restval"), in the order of the store."""
    folder = need_root(root, "store", f"{MANIFEST}, shard-*.arrow and {CAPTIONS}")
    store = FeatureStore.open(folder)
    captions = store.captions()
    if not captions:
        raise SaccadeError(f"{folder / CAPTIONS} is missing or empty: a split needs sentences to go with the pictures")
    splits = sorted({c.split for c in captions if c.split is not None})
    wanted = chosen_splits(split, splits, folder) if splits else {None}
    return join_captions("store", split, store, (c for c in captions if c.split in wanted), store.extractor)


def join_captions(
    name: str, split: str, pictures: RegionSource, captions: Iterable[Caption], extractor: str | None = None
) -> CaptionedImages:
    """Sentences and the pictures they name, as one split. The pictures keep their order, the sentences theirs."""
    captions = tuple(captions)
    index = {id: n for n, id in reversed(list(enumerate(pictures.ids)))}  # of equal ids, the first
    missing = next((c.image for c in captions if c.image not in index), None)
    if missing is not None:
        raise SaccadeError(f'there are no features of the picture "{missing}", which a caption of {name}/{split} names')
    positions = sorted({index[c.image] for c in captions})
    place = {position: n for n, position in enumerate(positions)}
    return CaptionedImages(
        name=name,
        split=split,
        images=pictures if positions == list(range(len(pictures))) else RegionSubset(pictures, positions),
        texts=tuple(c.text for c in captions),
        image_of_text=np.array([place[index[c.image]] for c in captions], dtype=np.int64),
        extractor=extractor,
    )
