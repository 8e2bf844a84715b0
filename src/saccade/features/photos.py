"""Photos with captions become what models train on: regions an extractor saw, kept in the cache, or plain pixels."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import torch

from saccade.core.errors import SaccadeError
from saccade.core.files import cache_folder
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedImages, CaptionedPhotos
from saccade.data.store.pixels import open_pixels, photos_digest
from saccade.features.extraction import extract
from saccade.vision import load_extractor


def extract_photos(photos: CaptionedPhotos, extractor_name: str) -> CaptionedImages:
    """The regions that an extractor finds in each photo. What is in the cache is kept, the rest is seen now."""
    extractor = load_extractor(extractor_name, "cuda" if torch.cuda.is_available() else "cpu")
    facts = f"{photos_digest(photos)} {extractor.digest}"
    folder = cache_folder() / "features" / hashlib.sha256(facts.encode()).hexdigest()[:16]
    files = list(zip(photos.ids, photos.paths, strict=True))
    sizes = dict(zip(photos.ids, photos.sizes, strict=True)) if photos.sizes else None
    with progress_bar(f"seeing {photos.name}/{photos.split} ({extractor.name})") as tell:
        found = extract(files, extractor, folder, sizes=sizes, batch_size=64, workers=8, retry=True, progress=tell)
    if found.broken:
        raise SaccadeError(f"{photos.name}/{photos.split}: {found.broken[0].reason}")
    return CaptionedImages(photos.name, photos.split, found.images, photos.texts, photos.image_of_text, extractor.name)


def pixels_of_photos(photos: CaptionedPhotos, size: int) -> CaptionedImages:
    """The photos as squares of `size` pixels, for a model that sees for itself."""
    with progress_bar(f"decoding {photos.name}/{photos.split}") as tell:
        source = open_pixels(photos, size, tell)
    return CaptionedImages(photos.name, photos.split, source, photos.texts, photos.image_of_text)


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
