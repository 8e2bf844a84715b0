"""Clicks as models learn from them: every item's picture as one vector, the mean of its regions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from saccade.data.clicks import Catalogue, Clicks
from saccade.data.registry import DataConfig, open_records
from saccade.features.splits import extract_split

AT_ONCE = 256  # pictures


@lru_cache(maxsize=4)
def open_clicks(config: DataConfig, split: str, device: str = "cpu") -> Clicks:
    """The impressions of one split; `in_memory` keeps items and impressions on the training device."""
    found: Clicks = open_records(config, split, "clicks")
    catalogue = with_image_features(found.catalogue, config.extractor)
    return replace(found, catalogue=catalogue, device=device if config.in_memory else None)


def with_image_features(catalogue: Catalogue, extractor: str) -> Catalogue:
    """Where features come with the items, these; where pictures do, what the extractor finds in them."""
    if catalogue.image is not None or catalogue.pictures is None or catalogue.picture_rows is None:
        return catalogue
    found = extract_split(catalogue.pictures, extractor)
    image = np.zeros((len(catalogue), found.regions.dim), np.float32)
    for start in range(0, len(found.regions), AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(found.regions)))
        regions = found.regions.batch(part)
        count = regions.mask.sum(dim=1, keepdim=True).clamp(min=1)
        mean = (regions.features.float() * regions.mask[..., None]).sum(dim=1) / count
        image[catalogue.picture_rows[start : part.stop]] = mean.numpy()
    return replace(catalogue, image=image, extractor=found.extractor)
