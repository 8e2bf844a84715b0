"""A split of a data set as models train on it: regions that an extractor finds, pixels, or boxes with phrases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import END, PAD, Batch, PictureBatch, TextBatch
from saccade.core.arrays import map_npy
from saccade.core.cache import cached, close_to_others
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file, only_one
from saccade.core.progress import progress_bar
from saccade.data.records import (
    BoxedPicture,
    CaptionedDrawings,
    CaptionedImages,
    CaptionedPhotos,
    CaptionedVideos,
    Groundings,
    ImageSource,
    Moments,
    PhrasedBoxes,
    PictureFile,
    Questions,
    Referrals,
    RegionSource,
    RegionSubset,
    RelatedThings,
    Relations,
)
from saccade.data.registry import Annotation, DataConfig, names_with, open_records, own_split, parts_of
from saccade.data.store.sources import ChainedRegions, RegionsInMemory, first_images, held_in_memory
from saccade.features.extraction import boxes_digest, extract
from saccade.vision import RegionExtractor, load_extractor
from saccade.vision.boxes import WHOLE
from saccade.vision.extractors import TRUE_BOXES, VIDEO_EXTRACTORS
from saccade.vision.pictures import as_array, open_picture

STORE_FORMAT = 2  # what another version wrote to the cache is left alone
BATCH_SIZE = 64  # pictures that go through the network together
WORLD_FRAMES = "frames:world,rate=4,places=4"  # what the world's videos are seen by
MAX_KEPT_SIDE = 384  # pixels, of a photo whose boxes have phrases
DECODING_THREADS = 8  # for pixels: Pillow decodes without holding the interpreter


def open_split(config: DataConfig, split: str, pixels: int | None = None) -> CaptionedImages:
    """One split of a data set, e.g. `open_split(DataConfig("precomp", Path("data/f30k_precomp")), "test")`.

    Photos become the regions of `config.extractor`; with `pixels`, they come as squares of that size for a model that
    trains its own backbone. The world's pictures become those of its own extractor, or cells of that extractor's map
    with `grid:world/7` and the like, or with `true-boxes` what its extractor sees in the true boxes; extractors for
    photos, which the settings name for other data, are not used on it.
    """
    return as_images(open_records(config, split), config, pixels)


@lru_cache(maxsize=4)
def open_questions(
    config: DataConfig,
    split: str,
    pixels: int | None = None,
    device: str = "cpu",
    annotation: Annotation = "questions",
) -> Questions[CaptionedImages]:
    """The questions of one split, and their pictures as `open_split` has them; in memory if the settings say so.

    Of several data sets ("flickr8k+daquar"), the questions of one after the other; kinds and ids say whose they are.
    """
    parts = parts_of(config)
    if len(parts) > 1:
        if pixels is not None:
            raise SaccadeError(f"data={config.name}: a model that trains its own backbone learns from one data set")
        opened = [
            open_questions(replace(part, in_memory=False), own_split(part, split, annotation), annotation=annotation)
            for part in parts
        ]
        joined = join_questions(config.name, split, dict(zip((part.name for part in parts), opened, strict=True)))
        return replace(joined, pictures=held_in_memory(joined.pictures, device)) if config.in_memory else joined
    found: Questions[CaptionedPhotos | CaptionedDrawings | CaptionedImages]
    found = open_records(config, split, annotation)
    return found.of(*_annotated(found.pictures, config, pixels, device))


def join_questions(
    name: str, split: str, parts: Mapping[str, Questions[CaptionedImages]]
) -> Questions[CaptionedImages]:
    """The questions of several data sets, by their names, whose pictures went through one extractor."""
    splits = list(parts.values())
    before = np.cumsum([0, *(len(part.images) for part in splits)])
    pictures = CaptionedImages(
        name,
        split,
        ChainedRegions([part.pictures.regions for part in splits]),
        tuple(text for part in splits for text in part.texts),
        np.concatenate([part.pictures.image_of_text + n for part, n in zip(splits, before, strict=False)]),
        splits[0].pictures.extractor,
    )
    return Questions(
        pictures,
        tuple(given for part in splits for given in part.answers),
        tuple(f"{name}_{kind}" if kind else name for name, part in parts.items() for kind in part.kinds),
        tuple(f"{name}/{id}" for name, part in parts.items() for id in part.ids),
    )


@lru_cache(maxsize=4)
def open_groundings(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> Groundings[CaptionedImages]:
    """The sentences of one split with their phrases, and the pictures as for `open_questions`."""
    found: Groundings[CaptionedPhotos | CaptionedDrawings | CaptionedImages]
    found = open_records(config, split, "grounding")
    return found.of(*_annotated(found.pictures, config, pixels, device))


@lru_cache(maxsize=4)
def open_moments(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> Moments[CaptionedImages]:
    """The sentences of one split with their spans, and the frames of the videos."""
    found: Moments[CaptionedPhotos | CaptionedDrawings | CaptionedImages]
    found = open_records(config, split, "moments")
    return found.of(*_annotated(found.pictures, config, pixels, device))


@lru_cache(maxsize=4)
def open_relations(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> Relations[CaptionedImages]:
    """The pictures of one split with their things and relations, as regions.

    Of photos, `extractor=true-boxes:NAME` gives what the extractor NAME sees in the true boxes; the world's is its own.

    Raises: SaccadeError if the data set has none.
    """
    if pixels is not None:
        raise SaccadeError("relations are learned from regions: a model cannot train its own backbone on them")
    found: Relations[CaptionedDrawings] | Relations[CaptionedPhotos]
    if config.name in names_with("relations"):
        found = open_records(config, split, "relations")
    else:
        found = boxed_relations(config.name, split, open_records(config, split, "boxes"))
    if not any(own.relations for own in found.things):
        raise SaccadeError(f"data={config.name}: the split {split} has no relations between things")
    things = found.things[: config.limit]
    if isinstance(found.pictures, CaptionedPhotos) and config.extractor.partition(":")[0] == TRUE_BOXES:
        photos = found.pictures if config.limit is None else first_images(found.pictures, config.limit)
        boxes = dict(zip(photos.ids, (own.boxes for own in things), strict=True))
        pictures = extract_split(photos, config.extractor, boxes)
    else:
        pictures = as_images(found.pictures, config, None)
    return Relations(held_in_memory(pictures, device) if config.in_memory else pictures, things)


def boxed_relations(name: str, split: str, boxed: Sequence[BoxedPicture]) -> Relations[CaptionedPhotos]:
    """The photos that have a thing."""
    kept = [picture for picture in boxed if len(picture.boxes)]
    photos = CaptionedPhotos(
        name,
        split,
        tuple(picture.id for picture in kept),
        tuple(picture.path for picture in kept),
        (),
        np.zeros(0, dtype=np.int64),
        tuple((picture.width, picture.height) for picture in kept),
    )
    return Relations(photos, tuple(RelatedThings(own.boxes, own.names, own.relations) for own in kept))


@lru_cache(maxsize=4)
def open_referrals(config: DataConfig, split: str, device: str = "cpu") -> Referrals[CaptionedImages]:
    """Expressions and dialogs of one split: the pictures as for `open_questions`, and beside them what the same
    extractor sees in the boxes that texts choose among.
    """
    found: Referrals[CaptionedPhotos | CaptionedDrawings | CaptionedImages]
    found = open_records(config, split, "referring")
    whole = np.array([WHOLE], np.float32)  # of a picture without boxes, which no text is about
    candidates = found.candidates[: config.limit]
    boxes = {id: c.boxes if len(c.boxes) else whole for id, c in zip(_ids(found.pictures), candidates, strict=False)}
    limited = found.of(*_annotated(found.pictures, config, None, device))
    features = extract_split(_without_texts(found.pictures, config.limit), config.extractor, boxes).regions
    if config.in_memory:
        features = cast(RegionSource, RegionsInMemory(features, device))
    return replace(limited, candidates=candidates, features=features)


def _ids(data: CaptionedPhotos | CaptionedDrawings | CaptionedImages) -> tuple[str, ...]:
    """Raises: SaccadeError if these are regions already: nothing can look into other boxes."""
    if isinstance(data, CaptionedImages):
        raise SaccadeError(f"data={data.name} holds features; boxes that texts choose among need pictures")
    return data.ids


def _without_texts(
    data: CaptionedPhotos | CaptionedDrawings | CaptionedImages, count: int | None
) -> CaptionedPhotos | CaptionedDrawings:
    """The first pictures alone."""
    assert not isinstance(data, CaptionedImages)
    none = np.zeros(0, dtype=np.int64)
    if isinstance(data, CaptionedPhotos):
        kept = data.ids[:count], data.paths[:count], data.sizes[:count]
        return CaptionedPhotos(data.name, data.split, kept[0], kept[1], (), none, kept[2])
    return replace(data, texts=(), image_of_text=none, ids=data.ids[:count], pictures=data.pictures[:count])


def _annotated(
    data: CaptionedPhotos | CaptionedDrawings | CaptionedImages, config: DataConfig, pixels: int | None, device: str
) -> tuple[CaptionedImages, list[int]]:
    """The pictures of a record as the settings want them, and which of its texts are left by `limit`."""
    images, owners = as_images(data, config, pixels), data.image_of_text.tolist()
    kept = [n for n, image in enumerate(owners) if config.limit is None or image < config.limit]
    return held_in_memory(images, device) if config.in_memory and pixels is None else images, kept


def as_images(
    data: CaptionedPhotos | CaptionedDrawings | CaptionedImages, config: DataConfig, pixels: int | None
) -> CaptionedImages:
    """What a reader found as regions or as pixels."""
    if isinstance(data, CaptionedPhotos):
        photos = data if config.limit is None else first_images(data, config.limit)
        if pixels is None:
            return extract_split(photos, config.extractor)
        with progress_bar(f"decoding {photos.name}/{photos.split}") as progress:
            source = open_pixels(photos.ids, photos.paths, pixels, progress)
        return CaptionedImages(photos.name, photos.split, source, photos.texts, photos.image_of_text)
    if pixels is not None and isinstance(data, CaptionedDrawings) and not data.seconds:
        with progress_bar(f"drawing {data.name}/{data.split}") as progress:
            source = open_pixels(data.ids, data.pictures, pixels, progress, f"{data.digest}-{data.split}")
        drawn = CaptionedImages(data.name, data.split, source, data.texts, data.image_of_text)
        return drawn if config.limit is None else drawn.select(range(min(config.limit, len(drawn.images))))
    if pixels is not None:
        raise SaccadeError(
            f"data={config.name} holds features, and a model that sees for itself needs photos: give a data set of "
            "photos and its folder, for one data=flickr8k root=FOLDER"
        )
    if isinstance(data, CaptionedDrawings):
        data = extract_split(data, config.extractor)
    assert isinstance(data, CaptionedImages)
    return data if config.limit is None else first_images(data, config.limit)


@lru_cache(maxsize=4)
def open_in_memory(config: DataConfig, split: str, device: str = "cpu") -> CaptionedImages:
    """`open_split`, held in memory; runs that follow each other in one process find it there."""
    return held_in_memory(open_split(config, split), device)


def extract_split(
    data: CaptionedPhotos | CaptionedDrawings, extractor_name: str, given: Mapping[str, np.ndarray] | None = None
) -> CaptionedImages:
    """The regions that an extractor finds in each picture, or sees in the boxes that are `given` by the pictures' ids.
    What is in the cache is kept, the rest is extracted now.

    Drawings go through the extractor made for them, as `open_split` says, and are not tried again if one is broken.
    """
    pictures: Sequence[PictureFile]
    retry = isinstance(data, CaptionedPhotos)
    boxes, name, seconds = given, None, None
    own = "" if given is None else boxes_digest(given, "fraction")
    if isinstance(data, CaptionedDrawings):
        extractor = load_extractor(_drawing_extractor(extractor_name, bool(data.seconds)))
        seconds = dict(zip(data.ids, data.seconds, strict=True)) if data.seconds else None
        inside: tuple[str, ...] = (data.split,)
        if extractor_name == TRUE_BOXES and given is None:
            name, inside, boxes = TRUE_BOXES, (data.split, TRUE_BOXES), true_boxes(data)
        folder, pictures, sizes = _features_folder(data.digest + own, extractor, *inside), data.pictures, None
    else:
        if isinstance(data, CaptionedVideos) and not extractor_name.startswith(VIDEO_EXTRACTORS):
            extractor_name = f"frames:{extractor_name}"
        extractor = load_extractor(extractor_name, "cuda" if torch.cuda.is_available() else "cpu")
        inside = ()
        if extractor_name.partition(":")[0] == TRUE_BOXES:
            name, inside = extractor_name, (TRUE_BOXES,)
        folder, pictures = _features_folder(files_digest(data.paths) + own, extractor, *inside), data.paths
        sizes = dict(zip(data.ids, data.sizes, strict=True)) if data.sizes else None
    listed: list[tuple[str, PictureFile]] = list(zip(data.ids, pictures, strict=True))
    with progress_bar(f"extracting {data.name}/{data.split} ({extractor.name})") as progress:
        found = extract(
            *(listed, extractor, folder),
            boxes=boxes,
            sizes=sizes,
            seconds=seconds,
            batch_size=BATCH_SIZE,
            retry=retry,
            progress=progress,
        )
    close_to_others(folder)
    if found.broken:
        raise SaccadeError(f"{data.name}/{data.split}: {found.broken[0].reason}")
    return CaptionedImages(data.name, data.split, found.images, data.texts, data.image_of_text, name or extractor.name)


def _drawing_extractor(name: str, videos: bool) -> str:
    """The world's own, or a grid over its map; of videos, whichever way of looking at its frames is named."""
    if videos:
        return name if name.startswith("frames:world") else WORLD_FRAMES
    return name if name.startswith("grid:world") else "world"


def true_boxes(data: CaptionedDrawings) -> dict[str, np.ndarray]:
    """The boxes of what can be seen, and after them the whole picture, as an extractor has them.

    Raises: SaccadeError if they are not known.
    """
    if not data.boxes:
        raise SaccadeError(f"{data.name} does not know its true boxes: extractor={TRUE_BOXES} is for the world")
    found = {id: np.asarray(boxes()) for id, boxes in zip(data.ids, data.boxes, strict=True)}
    seen = {id: own[(own[:, 2:] > own[:, :2]).all(axis=1)] for id, own in found.items()}
    return {id: np.concatenate([own, np.array([WHOLE], own.dtype)]) for id, own in seen.items()}


def _features_folder(digest: str, extractor: RegionExtractor, *inside: str) -> Path:
    """Where features are kept: named for the format of stores, the pictures and the extractor's weights."""
    facts = f"{STORE_FORMAT} {digest} {extractor.digest}"
    return cached("features", hashlib.sha256(facts.encode()).hexdigest()[:16], *inside)


class PixelSource:
    """An ImageSource of bytes [image, height, width, 3]: of an array, often a mapped file, or drawn when asked for."""

    def __init__(self, ids: Sequence[str], pictures: np.ndarray | Sequence[Callable[[], np.ndarray]]) -> None:
        self.ids, self.pictures = ids, pictures

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> PictureBatch:
        kept = self.pictures
        pixels = kept[list(indices)] if isinstance(kept, np.ndarray) else np.stack([kept[i]() for i in indices])
        return PictureBatch(torch.from_numpy(pixels), tuple(self.ids[i] for i in indices))


def open_pixels(
    ids: Sequence[str],
    pictures: Sequence[PictureFile],
    size: int,
    progress: Callable[[int, int], None] | None = None,
    digest: str | None = None,
) -> PixelSource:
    """Photos at `size` × `size`, in one file of the cache that is mapped: decoded into it now, if it is not there.

    Drawings have a `digest` of all that they depend on.
    """
    file = cached("pixels", f"{digest or files_digest(cast(Sequence[Path], pictures))}-{size}.npy")
    shape = (len(pictures), size, size, 3)

    def squared(picture: PictureFile) -> np.ndarray:
        return as_array(picture() if callable(picture) else picture, str(picture), size)

    with only_one(file):
        if not file.exists():
            with atomic_file(file) as temporary, ThreadPoolExecutor(DECODING_THREADS) as pool:
                pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
                for n, picture in enumerate(pool.map(squared, pictures)):
                    pixels[n] = picture
                    if progress:
                        progress(n + 1, len(pictures))
                pixels.flush()
            close_to_others(file)
    damaged = SaccadeError(f"{file} is damaged: remove it, and it is made again")
    try:
        found = map_npy(file)
    except SaccadeError as error:
        raise damaged from error
    if found.shape != shape or found.dtype != np.uint8:
        raise damaged
    return PixelSource(ids, found)


def files_digest(paths: Sequence[Path]) -> str:
    """Of the files as they are now: the features of a photo that was replaced are extracted again."""
    digest = hashlib.sha256()
    for path in paths:
        with explain_os_errors(path, "read"):
            facts = path.stat()
        digest.update(f"\0{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class PhrasedPictures:
    """One split: pictures as pixels, and what is said of their parts."""

    name: str
    split: str
    images: ImageSource
    regions: tuple[PhrasedBoxes, ...]
    extractor: str | None = None  # none has been applied

    def __post_init__(self) -> None:
        if len(self.images) != len(self.regions):
            raise SaccadeError(
                f"{self.name}/{self.split}: {len(self.images)} pictures, {len(self.regions)} lists of boxes"
            )

    @property
    def texts(self) -> list[str]:
        return [phrase for picture in self.regions for phrases in picture.phrases for phrase in phrases]

    def select(self, positions: Sequence[int]) -> PhrasedPictures:
        """The pictures at `positions`; nothing is copied."""
        images = RegionSubset(cast(RegionSource, self.images), positions)
        return replace(self, images=images, regions=tuple(self.regions[p] for p in positions))

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
    counts = torch.zeros(len(regions), things, dtype=torch.long)
    for own, found in zip(counts, regions, strict=True):
        own[: len(found.phrases)] = torch.tensor([len(phrases) for phrases in found.phrases], dtype=torch.long)
    real = counts > 0
    boxes = torch.zeros(len(regions), things, 4)
    boxes[real] = torch.from_numpy(np.concatenate([np.zeros((0, 4), np.float32), *(r.boxes for r in regions)]))
    texts = [phrase for r in regions for phrases in r.phrases for phrase in phrases]
    tokens = read(texts).tokens if texts else torch.zeros(0, 2, dtype=torch.long)
    kept = tokens[:, : longest + 2].clone()  # <start>, at most `longest` words, <end>
    if tokens.shape[1] > longest + 2:
        kept[tokens[:, longest + 2] != PAD, -1] = END
    words = torch.zeros(len(regions), things, most, kept.shape[1], dtype=torch.long)
    words[torch.arange(most) < counts[:, :, None]] = kept
    return PhraseBatch(pictures, boxes, real, words, counts)


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
        return PhrasedPictures(config.name, split, PixelSource(ids, drawings), regions)
    size = min(MAX_KEPT_SIDE, max(open_picture(paths[0]).size))
    with progress_bar(f"decoding {config.name}/{split}") as progress:
        return PhrasedPictures(config.name, split, open_pixels(ids, paths, size, progress), regions)
