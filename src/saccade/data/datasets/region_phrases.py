"""Pictures whose boxes have phrases: what a dense captioner learns from. The world's, or Flickr30k Entities'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from saccade.batch import END, PAD, Batch, PictureBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.progress import progress_bar
from saccade.data.datasets.entities import PHOTO_FOLDERS, EntityPicture, read_entities
from saccade.data.datasets.photos import PhotoFolder, first_folder, speaks
from saccade.data.datasets.world import check_world
from saccade.data.records import CaptionedPhotos, ImageSource
from saccade.data.registry import DataConfig, need_root
from saccade.data.store.pixels import open_pixels
from saccade.vision.pictures import open_picture
from saccade.world import Split, WorldConfig, make_world
from saccade.world.region_phrases import region_phrases

SMALLEST = 0.02  # of a side: what can hardly be seen is not asked for
LARGEST = 384  # side of a photo as it is kept
ENTITIES = ("flickr8k", "flickr30k")  # data sets whose folder may hold Entities


@dataclass(frozen=True)
class PhrasedBoxes:
    """Boxes of one picture, each with one phrase or more."""

    boxes: Float32[np.ndarray, "thing 4"]  # x1, y1, x2, y2 in 0..1
    phrases: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if len(self.boxes) != len(self.phrases) or not all(self.phrases):
            raise SaccadeError(f"{len(self.boxes)} boxes need a phrase each, there are phrases of {len(self.phrases)}")


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
    """One split of a data set whose boxes have phrases, its pictures as squares."""
    if config.name == "world":
        data = _open_world(split, config.root, config.seed, config.pictures)
    elif config.name in ENTITIES:
        root = need_root(config.root, config.name, "photos and Entities: images/ and entities.jsonl.gz")
        data = open_entities(root, split, config.name, config.limit)
    else:
        known = ", ".join(("world", *ENTITIES))
        raise SaccadeError(f"data={config.name} has no boxes with phrases: a dense captioner learns from {known}")
    if config.limit is None or config.limit >= len(data.images):
        return data
    if config.limit < 1:
        raise SaccadeError(f"a limit of {config.limit} pictures leaves nothing to read")
    return replace(data, images=_First(data.images, config.limit), regions=data.regions[: config.limit])


class _First:
    """The first pictures of a source."""

    def __init__(self, source: ImageSource, count: int) -> None:
        self.ids, self.batch = source.ids[:count], source.batch

    def __len__(self) -> int:
        return len(self.ids)


class WorldPixels:
    """An ImageSource of the world's pictures."""

    def __init__(self, part: Split) -> None:
        self.part, self.ids = part, part.ids

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> PictureBatch:
        pictures = np.stack([self.part.image(i) for i in indices])
        return PictureBatch(torch.from_numpy(pictures), tuple(self.ids[i] for i in indices))


def _open_world(split: str, root: Path | None, seed: int, pictures: int) -> PhrasedPictures:
    check_world(split, pictures)
    with progress_bar("making the world") as tell:
        world = make_world(WorldConfig(pictures=pictures, seed=seed), root, progress=tell)
    part = world.split(split)
    return PhrasedPictures(
        "world", split, WorldPixels(part), tuple(map(partial(world_phrases, part), range(len(part))))
    )


def world_phrases(part: Split, i: int) -> PhrasedBoxes:
    """The things of a picture of the world that can be seen."""
    scene, boxes = part.scene(i), part.boxes(i)
    seen = [n for n, box in enumerate(boxes) if min(box[2] - box[0], box[3] - box[1]) > SMALLEST]
    return PhrasedBoxes(boxes[seen], tuple(region_phrases(scene, n) for n in seen))


def open_entities(root: Path, split: str, name: str, limit: int | None = None) -> PhrasedPictures:
    """Flickr30k Entities: each box of a chain of phrases with the words of them all.

    Photos are kept as squares as wide as the first of them is long, but no wider than `LARGEST`: a model stretches
    them to its own size.
    """
    pictures = list(read_entities(root, split))[:limit]
    if not pictures:
        raise SaccadeError(f'{root} has no Entities of the split "{split}"')
    folder = PhotoFolder(first_folder(root, PHOTO_FOLDERS))
    paths = tuple(folder.path(picture.id, root) for picture in pictures)
    ids = tuple(picture.id for picture in pictures)
    photos = CaptionedPhotos(name, split, ids, paths, (), np.zeros(0, dtype=np.int64))
    size = min(LARGEST, max(open_picture(paths[0]).size))
    with progress_bar(f"decoding {name}/{split}") as tell:
        source = open_pixels(photos, size, tell)
    return PhrasedPictures(name, split, source, tuple(map(entity_phrases, pictures)))


def entity_phrases(picture: EntityPicture) -> PhrasedBoxes:
    """The boxes of every chain that some phrase names; a chain of several boxes gives its phrases to each."""
    boxes, phrases = [], []
    for chain, found in picture.boxes.items():
        said = dict.fromkeys(" ".join(phrase.words).lower() for phrase in picture.phrases(chain))
        named = tuple(phrase for phrase in said if speaks(phrase))
        if named:
            boxes += list(found)
            phrases += [named] * len(found)
    return PhrasedBoxes(np.array(boxes, dtype=np.float32).reshape(-1, 4), tuple(phrases))
