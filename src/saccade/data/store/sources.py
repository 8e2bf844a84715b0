"""Chains of region sources, sources held in memory, and the split of a store that its captions name.

`data=store root=FOLDER` is a feature store with `captions.jsonl`. Where its captions name no splits, `held_out_splits`
makes them: a model is never judged by the pictures that it learned from.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from saccade.batch import FrameBatch, RegionBatch, stack
from saccade.core.errors import SaccadeError
from saccade.core.progress import note_once
from saccade.data.records import (
    Caption,
    CaptionedImages,
    CaptionedPhotos,
    CaptionedVideos,
    PictureRegions,
    RegionSource,
    RegionSubset,
)
from saccade.data.registry import chosen_splits, need_root
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.manifest import CAPTIONS, MANIFEST

Split = TypeVar("Split", CaptionedImages, CaptionedPhotos)

FEWEST_TO_SPLIT = 10  # pictures whose captions name no splits
READ_AT_ONCE = 256  # pictures, when a whole source is read into memory


class WrappedRegions(RegionSource):
    """The same pictures, of which a class that inherits from it changes something."""

    def __init__(self, source: RegionSource) -> None:
        self.source = source

    @property
    def ids(self) -> Sequence[str]:
        return self.source.ids

    @property
    def dim(self) -> int:
        return self.source.dim

    def get(self, index: int) -> PictureRegions:
        return self.source.get(index)


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
        seconds = float(one.seconds[0]) if isinstance(one, FrameBatch) and one.seconds is not None else None
        return PictureRegions(self.ids[index], one.features[0].numpy(), one.boxes[0].numpy(), seconds=seconds)

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
        if isinstance(data, CaptionedVideos):
            fewer["seconds"] = data.seconds[:count]
    elif count < len(data.images):
        fewer["images"] = RegionSubset(data.regions, range(count))
    return replace(data, **fewer)


def open_store(split: str, root: Path | None) -> CaptionedImages:
    """The pictures whose captions are of this split or sum of splits ("train+restval"), in the order of the store.

    "all" are all of them.
    """
    folder = need_root(root, "store", f"{MANIFEST}, shard-*.arrow and {CAPTIONS}")
    store = FeatureStore.open(folder)
    captions = store.captions()
    if not captions:
        raise SaccadeError(f"{folder / CAPTIONS} is missing or empty: a split needs sentences to go with the pictures")
    split_of = _named_splits(captions, folder / CAPTIONS)
    if split != "all" or "all" in split_of.values():
        split_of = split_of or _made_splits(captions, folder / CAPTIONS)
        wanted = chosen_splits(split, set(split_of.values()), folder)
        captions = tuple(caption for caption in captions if split_of[caption.image] in wanted)
    return join_captions("store", split, store, captions, store.extractor)


def _named_splits(captions: Iterable[Caption], path: Path) -> dict[str, str]:
    """Picture → split as its captions say; empty if none of them does.

    Raises: SaccadeError if only some do, or a picture is said to be in two splits.
    """
    named: dict[str, str | None] = {}
    for caption in captions:
        if named.setdefault(caption.image, caption.split) != caption.split:
            parts = " and ".join(str(part or "no split") for part in (named[caption.image], caption.split))
            raise SaccadeError(
                f'{path} has captions of the picture "{caption.image}" in {parts}: what is learned from must not '
                "judge, give all captions of a picture one split"
            )
    lost = next((image for image, split in named.items() if split is None), None)
    split_of = {image: split for image, split in named.items() if split is not None}
    if split_of and lost is not None:
        raise SaccadeError(f'{path} names a split of some pictures but none of "{lost}": give one to all or to none')
    return split_of


def _made_splits(captions: Iterable[Caption], path: Path) -> dict[str, str]:
    split_of = held_out_splits(dict.fromkeys(caption.image for caption in captions), path)
    counts = {split: sum(part == split for part in split_of.values()) for split in ("train", "dev", "test")}
    note_once(
        f"{path} names no splits, so a hash of each picture's name does: {counts['train']:,} train, "
        f"{counts['dev']:,} dev, {counts['test']:,} test (about a tenth each is held out; split=all means all of them)"
    )
    return split_of


def held_out_splits(ids: Iterable[str], where: object) -> dict[str, str]:
    """Picture → train, dev or test, by the first bytes of the SHA-256 of its id: a tenth is test, the next tenth dev.

    A picture keeps its split when others are added. Few pictures may leave a tenth empty: then the one with the lowest
    hash of those that are left is taken.

    Raises: SaccadeError if there are too few pictures to hold any out.
    """
    digests = {id: hashlib.sha256(id.encode("utf-8", "backslashreplace")).digest() for id in ids}
    hashes = {id: int.from_bytes(digest[:8], "big") / 2**64 for id, digest in digests.items()}
    if len(hashes) < FEWEST_TO_SPLIT:
        raise SaccadeError(
            f"{where} names no splits and has {len(hashes)} pictures, too few to hold some out (at least "
            f"{FEWEST_TO_SPLIT}): give each caption a split, train, dev or test"
        )
    split_of = {id: "test" if hash < 0.1 else "dev" if hash < 0.2 else "train" for id, hash in hashes.items()}
    for split in ("test", "dev"):
        if split not in split_of.values():
            split_of[min((id for id in hashes if split_of[id] == "train"), key=hashes.__getitem__)] = split
    return split_of


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
