"""Photos as pixels, for models that train their own extractor: decoded once, stretched, kept in one file that is
mapped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from saccade.batch import PictureBatch
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file, cache_folder, only_one
from saccade.data.records import CaptionedPhotos
from saccade.vision.pictures import as_array

WORKERS = 8  # Pillow decodes without holding the interpreter, so threads do


class PixelSource:
    """An ImageSource of bytes [image, size, size, 3]."""

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


def open_pixels(photos: CaptionedPhotos, size: int, progress: Callable[[int, int], None] | None = None) -> PixelSource:
    """The photos of a split at `size` × `size`: from the cache, or decoded into it now."""
    file = cache_folder() / "pixels" / f"{photos_digest(photos)}-{size}.npy"
    with only_one(file):
        if not file.exists():
            _decode(photos, size, file, progress)
    return PixelSource(photos.ids, file, size)


def _decode(photos: CaptionedPhotos, size: int, file: Path, progress: Callable[[int, int], None] | None) -> None:
    with atomic_file(file) as temporary, ThreadPoolExecutor(WORKERS) as pool:
        shape = (len(photos.paths), size, size, 3)
        pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        for n, picture in enumerate(pool.map(lambda path: as_array(path, str(path), size), photos.paths)):
            pixels[n] = picture
            if progress:
                progress(n + 1, len(photos.paths))
        pixels.flush()


def photos_digest(photos: CaptionedPhotos) -> str:
    """Of the files as they are now: a photo that was replaced is seen again."""
    digest = hashlib.sha256()
    for path in photos.paths:
        with explain_os_errors(path, "read"):
            facts = path.stat()
        digest.update(f"\0{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
