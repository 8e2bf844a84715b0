"""Pictures varied on the way into a model that trains its own extractor."""

from __future__ import annotations

from dataclasses import replace

from saccade.batch import PictureBatch, RegionBatch
from saccade.models import Model
from saccade.vision.augment import AugmentConfig, augment


def vary_images(
    model: Model, images: RegionBatch | PictureBatch, augmentation: AugmentConfig | None
) -> RegionBatch | PictureBatch:
    """Pixels cropped, mirrored and tinted; regions are as they are."""
    if augmentation is None or not isinstance(images, PictureBatch):
        return images
    assert model.backbone is not None
    return replace(images, pixels=augment(images.pixels, model.backbone.size, augmentation))
