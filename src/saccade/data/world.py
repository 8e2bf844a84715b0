"""The built-in world as a data set: `data=world`. Made, seen by the eye and kept in the cache for the next time.

Splits: train, dev, test, hard (groups of pictures that differ in one binding only) and novel (held-out compositions).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID

from saccade.data.extract import extract
from saccade.data.records import CaptionedImages
from saccade.data.sources import source
from saccade.data.store import FeatureStore
from saccade.errors import SaccadeError, did_you_mean
from saccade.files import cache_folder
from saccade.vision import Eye, load_eye
from saccade.world import WorldConfig, make_world
from saccade.world.config import SPLITS

BATCH = 64  # pictures seen at once


@source("world")
def open_world(split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000) -> CaptionedImages:
    """One split of the world of `pictures` pictures and this seed. `root`, if given, is where the world is kept."""
    if split not in SPLITS:
        raise SaccadeError(
            f'the world has no split "{split}"{did_you_mean(split, SPLITS)} (there are: {", ".join(SPLITS)})'
        )
    if pictures < 1:
        raise SaccadeError(f"a world of {pictures} pictures is empty: give pictures=2000 or so")
    config = WorldConfig(pictures=pictures, seed=seed)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        world = make_world(config, root, progress=_bar(progress, "making the world"))
        part = world.split(split)
        eye = load_eye("world")
        store = see_split(part, eye, features_folder(config, eye) / split, progress)
    texts = [[caption.text for caption in part.captions(i)] for i in range(len(part))]
    return CaptionedImages(
        name="world",
        split=split,
        images=store,
        texts=tuple(text for own in texts for text in own),
        image_of_text=np.repeat(np.arange(len(part), dtype=np.int64), [len(own) for own in texts]),
        eye="world",
    )


def features_folder(config: WorldConfig, eye: Eye) -> Path:
    """Where the features of a world are kept: named for all that they depend on, the world and the eye's weights."""
    facts = f"{config.digest()} {eye.digest}"
    return cache_folder() / "features" / hashlib.sha256(facts.encode()).hexdigest()[:16]


def see_split(part: Any, eye: Eye, folder: Path, progress: Progress | None = None) -> FeatureStore:
    """The features of every picture of a split: what is in the store is kept, the rest is seen now.

    A run that was killed goes on where it was; a finished store is only opened.
    """
    ids = list(part.ids)
    if (folder / "manifest.json").exists() and list((store := FeatureStore.open(folder)).ids) == ids:
        return store
    pictures = [(id, partial(part.image, i)) for i, id in enumerate(ids)]
    found = extract(pictures, eye, folder, batch_size=BATCH, progress=_bar(progress, "seeing its pictures"))
    if found.broken:
        raise SaccadeError(f"{folder}: {found.broken[0].reason}")
    return found.store


def _bar(progress: Progress | None, title: str) -> Callable[[int, int], None]:
    """A bar that appears when the first progress is told: nothing flickers by when all is in the cache."""
    tasks: list[TaskID] = []

    def tell(done: int, total: int) -> None:
        if progress is None:
            return
        if not tasks:
            tasks.append(progress.add_task(title, total=total))
        progress.update(tasks[0], completed=done)

    return tell
