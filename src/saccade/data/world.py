"""The built-in world as a data set: `data=world`. Made, seen by the eye and kept in the cache for the next time.

Splits: train, dev, test, hard (groups of pictures that differ in one binding only) and novel (held-out compositions).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID

from saccade.data.records import CaptionedImages
from saccade.data.sources import source
from saccade.data.store import FeatureStore, StoreWriter
from saccade.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.files import cache_folder
from saccade.vision import Eye, load_eye
from saccade.world import WorldConfig, make_world
from saccade.world.config import SPLITS

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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
    tell = _bar(progress, "seeing its pictures")
    with only_one(folder):
        if (folder / "manifest.json").exists():
            store = FeatureStore.open(folder)
            if list(store.ids) == ids:
                return store
        _see_rest(part, ids, eye, folder, tell)
    return FeatureStore.open(folder)


def _see_rest(part: Any, ids: list[str], eye: Eye, folder: Path, tell: Callable[[int, int], None]) -> None:
    with StoreWriter(folder, eye.dim, "float16", eye=eye.name) as writer:
        todo = [i for i, id in enumerate(ids) if id not in writer.done]
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            images = [part.image(i) for i in batch]
            seen = eye.see(images, batch_size=BATCH)
            for row, i in enumerate(batch):
                kept = seen.mask[row]
                height, width = images[row].shape[:2]
                writer.append(ids[i], seen.features[row, kept].numpy(), seen.boxes[row, kept].numpy(), width, height)
            tell(len(writer.done), len(ids))


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time work on a folder: of several that train on one world, the first sees it for all."""
    with explain_os_errors(folder, "write"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{folder.name}.lock").open("w") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed, also by a kill
            yield


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
