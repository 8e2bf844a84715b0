"""A split of a data set as models train on it: regions that an extractor finds, or plain pixels; both are cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file, cache_folder, only_one
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedDrawings, CaptionedImages, CaptionedPhotos
from saccade.data.registry import DataConfig, open_records
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.sources import first_images, held_in_memory
from saccade.features.extraction import extract
from saccade.vision import RegionExtractor, load_extractor
from saccade.vision.pictures import as_array

BATCH_SIZE = 64  # pictures seen at once
DECODING_THREADS = 8  # for pixels: Pillow decodes without holding the interpreter


def open_split(config: DataConfig, split: str, pixels: int | None = None) -> CaptionedImages:
    """One split of a data set, e.g. `open_split(DataConfig("precomp", Path("data/f30k_precomp")), "test")`.

    Photos are seen by `config.extractor`; with `pixels`, they come as squares of that size for a model that trains its
    own backbone. The world is seen by its own extractor, or as cells of that extractor's map with `grid:world/7` and
    the like; an extractor for photos, which the settings name for data sets of photos, does not look at it.
    """
    data = open_records(config, split)
    if isinstance(data, CaptionedPhotos):
        photos = data if config.limit is None else first_photos(data, config.limit)
        return extract_photos(photos, config.extractor) if pixels is None else pixels_of_photos(photos, pixels)
    if pixels is not None:
        raise SaccadeError(
            f"data={config.name} holds features, and a model that sees for itself needs photos: give a data set of "
            "photos and its folder, for one data=flickr8k root=FOLDER"
        )
    if isinstance(data, CaptionedDrawings):
        data = extract_drawings(data, config.extractor)
    assert isinstance(data, CaptionedImages)
    return data if config.limit is None else first_images(data, config.limit)


@lru_cache(maxsize=4)
def open_in_memory(config: DataConfig, split: str, device: str = "cpu") -> CaptionedImages:
    """`open_split`, held in memory; runs that follow each other in one process find it there."""
    return held_in_memory(open_split(config, split), device)


def extract_photos(photos: CaptionedPhotos, extractor_name: str) -> CaptionedImages:
    """The regions that an extractor finds in each photo. What is in the cache is kept, the rest is seen now."""
    extractor = load_extractor(extractor_name, "cuda" if torch.cuda.is_available() else "cpu")
    folder = _features_folder(files_digest(photos.paths), extractor)
    files = list(zip(photos.ids, photos.paths, strict=True))
    sizes = dict(zip(photos.ids, photos.sizes, strict=True)) if photos.sizes else None
    with progress_bar(f"seeing {photos.name}/{photos.split} ({extractor.name})") as tell:
        found = extract(files, extractor, folder, sizes=sizes, batch_size=BATCH_SIZE, retry=True, progress=tell)
    if found.broken:
        raise SaccadeError(f"{photos.name}/{photos.split}: {found.broken[0].reason}")
    return CaptionedImages(photos.name, photos.split, found.images, photos.texts, photos.image_of_text, extractor.name)


def extract_drawings(data: CaptionedDrawings, extractor_name: str) -> CaptionedImages:
    """The regions of drawn pictures: what is cached is kept, the rest is seen now; a whole store is only opened."""
    extractor = load_extractor(extractor_name if extractor_name.startswith("grid:world") else "world")
    folder = _features_folder(data.digest, extractor) / data.split
    store: FeatureStore | None = None
    if (folder / "manifest.json").exists():
        store = FeatureStore.open(folder)
    if store is None or tuple(store.ids) != data.ids:
        with progress_bar("seeing its pictures") as tell:
            pictures = list(zip(data.ids, data.pictures, strict=True))
            found = extract(pictures, extractor, folder, batch_size=BATCH_SIZE, progress=tell)
        if found.broken:
            raise SaccadeError(f"{folder}: {found.broken[0].reason}")
        store = found.store
    return CaptionedImages(data.name, data.split, store, data.texts, data.image_of_text, extractor.name)


def _features_folder(digest: str, extractor: RegionExtractor) -> Path:
    """Where features are kept: named for the pictures and for the extractor's weights."""
    return cache_folder() / "features" / hashlib.sha256(f"{digest} {extractor.digest}".encode()).hexdigest()[:16]


def first_photos(photos: CaptionedPhotos, limit: int) -> CaptionedPhotos:
    """At most `limit` photos, with their sentences."""
    if limit < 1:
        raise SaccadeError(f"a limit of {limit} pictures leaves nothing to read")
    kept = np.flatnonzero(photos.image_of_text < limit)
    return replace(
        photos,
        ids=photos.ids[:limit],
        paths=photos.paths[:limit],
        sizes=photos.sizes[:limit],
        texts=tuple(photos.texts[i] for i in kept),
        image_of_text=photos.image_of_text[kept],
    )


def pixels_of_photos(photos: CaptionedPhotos, size: int) -> CaptionedImages:
    """The photos as squares of `size` pixels, for a model that trains its own backbone."""
    with progress_bar(f"decoding {photos.name}/{photos.split}") as tell:
        source = open_pixels(photos.ids, photos.paths, size, tell)
    return CaptionedImages(photos.name, photos.split, source, photos.texts, photos.image_of_text)


class PixelSource:
    """An ImageSource of bytes [image, size, size, 3], decoded once and kept in one file that is mapped."""

    def __init__(self, ids: Sequence[str], file: Path, size: int) -> None:
        self.ids = ids
        self.size = size
        damaged = SaccadeError(f"{file} is damaged: remove it, and it is made again")
        try:
            with explain_os_errors(file, "read"):
                self._pixels = np.load(file, mmap_mode="r")
        except (ValueError, EOFError) as error:  # what NumPy makes of a header that is none, and of a file cut short
            raise damaged from error
        if self._pixels.shape != (len(ids), size, size, 3) or self._pixels.dtype != np.uint8:
            raise damaged

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> PictureBatch:
        pixels = torch.from_numpy(self._pixels[list(indices)])
        return PictureBatch(pixels, tuple(self.ids[i] for i in indices))


def open_pixels(
    ids: Sequence[str], paths: Sequence[Path], size: int, progress: Callable[[int, int], None] | None = None
) -> PixelSource:
    """Photos at `size` × `size`: from the cache, or decoded into it now."""
    file = cache_folder() / "pixels" / f"{files_digest(paths)}-{size}.npy"
    with only_one(file):
        if not file.exists():
            _decode(paths, size, file, progress)
    return PixelSource(ids, file, size)


def _decode(paths: Sequence[Path], size: int, file: Path, progress: Callable[[int, int], None] | None) -> None:
    with atomic_file(file) as temporary, ThreadPoolExecutor(DECODING_THREADS) as pool:
        shape = (len(paths), size, size, 3)
        pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        for n, picture in enumerate(pool.map(lambda path: as_array(path, str(path), size), paths)):
            pixels[n] = picture
            if progress:
                progress(n + 1, len(paths))
        pixels.flush()


def files_digest(paths: Sequence[Path]) -> str:
    """Of the files as they are now: a photo that was replaced is seen again."""
    digest = hashlib.sha256()
    for path in paths:
        with explain_os_errors(path, "read"):
            facts = path.stat()
        digest.update(f"\0{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
