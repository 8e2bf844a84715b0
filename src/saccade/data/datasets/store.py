"""A feature store with `captions.jsonl` as a data set: `data=store root=FOLDER`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos import chosen_splits
from saccade.data.records import CaptionedImages, RegionSource
from saccade.data.registry import need_root, source
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.subset import RegionSubset
from saccade.data.text.captions import CAPTIONS, Caption


@source("store")
def open_store(split: str, root: Path | None) -> CaptionedImages:
    """The pictures that have a caption of this split or sum of splits ("train+restval"), in the order of the store."""
    folder = need_root(root, "store", f"manifest.json, shard-*.arrow and {CAPTIONS}")
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
