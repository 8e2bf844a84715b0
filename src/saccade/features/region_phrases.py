"""Pictures whose boxes have phrases: what a dense captioner learns from. The world's, or Flickr30k Entities'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, PAD, Batch, PictureBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.progress import progress_bar
from saccade.data.records import ImageSource, PhrasedBoxes, PictureFile
from saccade.data.registry import DataConfig, names_with, open_records
from saccade.features.splits import open_pixels
from saccade.vision.pictures import open_picture

MAX_KEPT_SIDE = 384  # of a photo, in pixels


@dataclass(frozen=True)
class PhrasedPictures:
    """One split: pictures as pixels, and what is said of their parts."""

    name: str
    split: str
    images: ImageSource
    regions: tuple[PhrasedBoxes, ...]
    extractor: str | None = None  # nobody has looked yet

    def __post_init__(self) -> None:
        if len(self.images) != len(self.regions):
            raise SaccadeError(
                f"{self.name}/{self.split}: {len(self.images)} pictures, {len(self.regions)} lists of boxes"
            )

    @property
    def texts(self) -> list[str]:
        return [phrase for picture in self.regions for phrases in picture.phrases for phrase in phrases]

    def pixels(self, indices: Sequence[int]) -> PictureBatch:
        pictures = self.images.batch(indices)
        assert isinstance(pictures, PictureBatch)
        return pictures


@dataclass(frozen=True)
class PhraseBatch(Batch):
    """Pictures with their boxes, padded, and the ids of one phrase or more of each box."""

    pictures: PictureBatch
    boxes: Float[Tensor, "image thing 4"]
    real: Bool[Tensor, "image thing"]
    phrases: Int[Tensor, "image thing phrase word"]  # <start> … <end>, then <pad>
    counts: Int[Tensor, "image thing"]  # how many phrases a box has


def phrase_batch(
    pictures: PictureBatch, regions: Sequence[PhrasedBoxes], read: Callable[[Sequence[str]], TextBatch], longest: int
) -> PhraseBatch:
    """Pad; `read` makes ids of phrases, of which `longest` words are kept."""
    things = max((len(r.boxes) for r in regions), default=0) or 1
    most = max((len(phrases) for r in regions for phrases in r.phrases), default=0) or 1
    boxes, real = torch.zeros(len(regions), things, 4), torch.zeros(len(regions), things, dtype=torch.bool)
    counts = torch.zeros(len(regions), things, dtype=torch.long)
    places = [
        (i, t, p) for i, r in enumerate(regions) for t, phrases in enumerate(r.phrases) for p in range(len(phrases))
    ]
    texts = [phrase for r in regions for phrases in r.phrases for phrase in phrases]
    told = read(texts).tokens if texts else torch.zeros(0, 2, dtype=torch.long)
    words = torch.zeros(len(regions), things, most, min(told.shape[1], longest + 2), dtype=torch.long)
    if places:
        words[tuple(torch.tensor(places).T)] = _cut(told, longest)
    for i, found in enumerate(regions):
        count = len(found.boxes)
        boxes[i, :count] = torch.from_numpy(found.boxes)
        real[i, :count] = True
        counts[i, :count] = torch.tensor([len(phrases) for phrases in found.phrases], dtype=torch.long)
    return PhraseBatch(pictures, boxes, real, words, counts)


def _cut(tokens: Int[Tensor, "text word"], longest: int) -> Int[Tensor, "text word2"]:
    """At most `longest` words between <start> and <end>."""
    kept = tokens[:, : longest + 2].clone()
    if tokens.shape[1] > longest + 2:
        kept[tokens[:, longest + 2] != PAD, -1] = END
    return kept


def open_region_phrases(config: DataConfig, split: str) -> PhrasedPictures:
    """One split of a data set whose boxes have phrases, its pictures as squares.

    Photos are kept as squares as wide as the first of them is long, but no wider than `MAX_KEPT_SIDE`: a model
    stretches them to its own size.
    """
    if config.name not in names_with("phrases"):
        known = ", ".join(names_with("phrases"))
        raise SaccadeError(f"data={config.name} has no boxes with phrases: a dense captioner learns from {known}")
    if config.limit is not None and config.limit < 1:
        raise SaccadeError(f"a limit of {config.limit} pictures leaves nothing to read")
    found: list[tuple[str, PictureFile, PhrasedBoxes]]
    found = list(islice(open_records(config, split, "phrases"), config.limit))
    if not found:
        raise SaccadeError(f'{config.root or config.name} has no boxes with phrases of the split "{split}"')
    ids, regions = tuple(id for id, _, _ in found), tuple(boxes for _, _, boxes in found)
    paths = [picture for _, picture, _ in found if isinstance(picture, Path)]
    if not paths:
        drawings = [picture for _, picture, _ in found if not isinstance(picture, Path)]
        return PhrasedPictures(config.name, split, DrawnPixels(ids, drawings), regions)
    size = min(MAX_KEPT_SIDE, max(open_picture(paths[0]).size))
    with progress_bar(f"decoding {config.name}/{split}") as tell:
        return PhrasedPictures(config.name, split, open_pixels(ids, paths, size, tell), regions)


class DrawnPixels:
    """An ImageSource of pictures that are drawn when asked for."""

    def __init__(self, ids: Sequence[str], pictures: Sequence[Callable[[], np.ndarray]]) -> None:
        self.ids, self.pictures = ids, pictures

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> PictureBatch:
        pixels = np.stack([self.pictures[i]() for i in indices])
        return PictureBatch(torch.from_numpy(pixels), tuple(self.ids[i] for i in indices))
