"""The built-in world as a data set: `data=world`, made when first asked for and kept in the cache.

Splits: train, dev, test, hard (groups of pictures that differ in one binding only) and novel (held-out compositions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from saccade.core.errors import SaccadeError, not_among
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedDrawings, PhrasedBoxes
from saccade.world import Split, WorldConfig, make_world
from saccade.world.captions import region_phrases
from saccade.world.store import SPLITS

MIN_PHRASED_SIDE = 0.02  # of the picture: smaller things are left out


def open_world(split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000) -> CaptionedDrawings:
    """One split of the world of `pictures` pictures and this seed. `root`, if given, is where the world is kept."""
    config, part = _open_part(split, root, seed, pictures)
    if not len(part):
        raise SaccadeError(f'a world of {pictures} pictures has none for the split "{split}": give pictures=2000 or so')
    texts = [[caption.text for caption in part.captions(i)] for i in range(len(part))]
    return CaptionedDrawings(
        name="world",
        split=split,
        ids=tuple(part.ids),
        pictures=tuple(partial(part.image, i) for i in range(len(part))),
        texts=tuple(text for own in texts for text in own),
        image_of_text=np.repeat(np.arange(len(part), dtype=np.int64), [len(own) for own in texts]),
        digest=config.digest(),
    )


def open_world_phrases(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Iterator[tuple[str, Callable[[], np.ndarray], PhrasedBoxes]]:
    """(id, picture, boxes with phrases) of each picture: the things in it that can be seen."""
    _, part = _open_part(split, root, seed, pictures)
    for i, id in enumerate(part.ids):
        scene, boxes = part.scene(i), part.boxes(i)
        visible = [n for n, box in enumerate(boxes) if min(box[2] - box[0], box[3] - box[1]) > MIN_PHRASED_SIDE]
        yield id, partial(part.image, i), PhrasedBoxes(boxes[visible], tuple(region_phrases(scene, n) for n in visible))


def _open_part(split: str, root: Path | None, seed: int, pictures: int) -> tuple[WorldConfig, Split]:
    if split not in SPLITS:
        raise SaccadeError(f"the world has no split {not_among(split, SPLITS)}")
    if pictures < 1:
        raise SaccadeError(f"a world of {pictures} pictures is empty: give pictures=2000 or so")
    config = WorldConfig(pictures=pictures, seed=seed)
    with progress_bar("making the world") as progress:
        world = make_world(config, root, progress=progress)
    return config, world.split(split)
