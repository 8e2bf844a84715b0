"""A split of a data set as models train on it: regions that an extractor finds, or plain pixels; both are cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file, cache_folder, only_one
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedDrawings, CaptionedImages, CaptionedPhotos, PictureFile
from saccade.data.registry import DataConfig, open_records
from saccade.data.store.sources import first_images, held_in_memory
from saccade.features.extraction import extract
from saccade.vision import RegionExtractor, load_extractor
from saccade.vision.pictures import as_array

BATCH_SIZE = 64  # pictures that go through the network together
DECODING_THREADS = 8  # for pixels: Pillow decodes without holding the interpreter


def open_split(config: DataConfig, split: str, pixels: int | None = None) -> CaptionedImages:
    """One split of a data set, e.g. `open_split(DataConfig("precomp", Path("data/f30k_precomp")), "test")`.

    Photos become the regions of `config.extractor`; with `pixels`, they come as squares of that size for a model that
    trains its own backbone. The world's pictures become those of its own extractor, or cells of that extractor's map
    with `grid:world/7` and the like; extractors for photos, which the settings name for other data, are not used on it.
    """
    data = open_records(config, split)
    if isinstance(data, CaptionedPhotos):
        photos = data if config.limit is None else first_images(data, config.limit)
        if pixels is None:
            return extract_split(photos, config.extractor)
        with progress_bar(f"decoding {photos.name}/{photos.split}") as progress:
            source = open_pixels(photos.ids, photos.paths, pixels, progress)
        return CaptionedImages(photos.name, photos.split, source, photos.texts, photos.image_of_text)
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


def extract_split(data: CaptionedPhotos | CaptionedDrawings, extractor_name: str) -> CaptionedImages:
    """The regions that an extractor finds in each picture. What is in the cache is kept, the rest is extracted now.

    Drawings go through the extractor made for them, as `open_split` says, and are not tried again if one is broken.
    """
    pictures: Sequence[PictureFile]
    retry = isinstance(data, CaptionedPhotos)
    if isinstance(data, CaptionedDrawings):
        extractor = load_extractor(extractor_name if extractor_name.startswith("grid:world") else "world")
        folder, pictures, sizes = _features_folder(data.digest, extractor) / data.split, data.pictures, None
    else:
        extractor = load_extractor(extractor_name, "cuda" if torch.cuda.is_available() else "cpu")
        folder, pictures = _features_folder(files_digest(data.paths), extractor), data.paths
        sizes = dict(zip(data.ids, data.sizes, strict=True)) if data.sizes else None
    listed: list[tuple[str, PictureFile]] = list(zip(data.ids, pictures, strict=True))
    with progress_bar(f"extracting {data.name}/{data.split} ({extractor.name})") as progress:
        found = extract(listed, extractor, folder, sizes=sizes, batch_size=BATCH_SIZE, retry=retry, progress=progress)
    if found.broken:
        raise SaccadeError(f"{data.name}/{data.split}: {found.broken[0].reason}")
    return CaptionedImages(data.name, data.split, found.images, data.texts, data.image_of_text, extractor.name)


def _features_folder(digest: str, extractor: RegionExtractor) -> Path:
    """Where features are kept: named for the pictures and for the extractor's weights."""
    return cache_folder() / "features" / hashlib.sha256(f"{digest} {extractor.digest}".encode()).hexdigest()[:16]


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
    """Of the files as they are now: the features of a photo that was replaced are extracted again."""
    digest = hashlib.sha256()
    for path in paths:
        with explain_os_errors(path, "read"):
            facts = path.stat()
        digest.update(f"\0{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
