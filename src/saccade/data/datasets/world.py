"""The built-in world as a data set: `data=world`. Made, seen by the extractor and kept in the cache for the next time.

Splits: train, dev, test, hard (groups of pictures that differ in one binding only) and novel (held-out compositions).
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.files import cache_folder
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedImages
from saccade.data.registry import source
from saccade.data.store.arrow import FeatureStore
from saccade.features.extraction import extract
from saccade.vision import RegionExtractor, load_extractor
from saccade.world import WorldConfig, make_world
from saccade.world.config import SPLITS

BATCH = 64  # pictures seen at once


@source("world")
def open_world(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000, extractor: str = "world"
) -> CaptionedImages:
    """One split of the world of `pictures` pictures and this seed. `root`, if given, is where the world is kept.

    The world is seen by its own extractor, or as cells of that extractor's map with `grid:world/7` and the like; an
    extractor for photos, which the settings name for data sets of photos, does not look at it.
    """
    check_world(split, pictures)
    config = WorldConfig(pictures=pictures, seed=seed)
    with progress_bar("making the world") as tell:
        world = make_world(config, root, progress=tell)
    part = world.split(split)
    if not len(part):
        raise SaccadeError(f'a world of {pictures} pictures has none for the split "{split}": give pictures=2000 or so')
    seeing = load_extractor(extractor if extractor.startswith("grid:world") else "world")
    store = extract_split(part, seeing, features_folder(config, seeing) / split)
    texts = [[caption.text for caption in part.captions(i)] for i in range(len(part))]
    return CaptionedImages(
        name="world",
        split=split,
        images=store,
        texts=tuple(text for own in texts for text in own),
        image_of_text=np.repeat(np.arange(len(part), dtype=np.int64), [len(own) for own in texts]),
        extractor=seeing.name,
    )


def check_world(split: str, pictures: int) -> None:
    """A sentence where there is no such split or no picture."""
    if split not in SPLITS:
        raise SaccadeError(
            f'the world has no split "{split}"{did_you_mean(split, SPLITS)} (there are: {", ".join(SPLITS)})'
        )
    if pictures < 1:
        raise SaccadeError(f"a world of {pictures} pictures is empty: give pictures=2000 or so")


def features_folder(config: WorldConfig, extractor: RegionExtractor) -> Path:
    """Where the features of a world are kept: named for the world and the extractor's weights."""
    facts = f"{config.digest()} {extractor.digest}"
    return cache_folder() / "features" / hashlib.sha256(facts.encode()).hexdigest()[:16]


def extract_split(part: Any, extractor: RegionExtractor, folder: Path) -> FeatureStore:
    """The features of every picture of a split: what is in the store is kept, the rest is seen now.

    A run that was killed goes on where it was; a finished store is only opened.
    """
    ids = list(part.ids)
    if (folder / "manifest.json").exists() and list((store := FeatureStore.open(folder)).ids) == ids:
        return store
    pictures = [(id, partial(part.image, i)) for i, id in enumerate(ids)]
    with progress_bar("seeing its pictures") as tell:
        found = extract(pictures, extractor, folder, batch_size=BATCH, progress=tell)
    if found.broken:
        raise SaccadeError(f"{folder}: {found.broken[0].reason}")
    return found.store
