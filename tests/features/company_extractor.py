"""An extractor for tests: quick, and its features depend on the company a picture is seen in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from saccade.batch import RegionBatch
from saccade.vision import Picture, RegionExtractor
from saccade.vision.extractors import Precision


class CompanyExtractor(RegionExtractor):
    """Two regions a picture: mean colours of its left and right half, moved by the mean of the batch."""

    def __init__(
        self,
        name: str = "company",
        digest: str = "1",
        pause: float = 0.0,
        told: Callable[[int], None] | None = None,
        precision: Precision = "fp32",
    ) -> None:
        self.name, self.digest, self.dim, self.picture_size = name, digest, 3, 8
        self.network = nn.Linear(1, 1)
        self.pause, self.told, self.precision = pause, told, precision

    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        if self.told is not None:
            self.told(len(images))
        time.sleep(self.pause)
        pixels = np.stack([self.prepare(image) for image in images]).astype(np.float32) / 255
        halves = np.stack([pixels[:, :, :4].mean(axis=(1, 2)), pixels[:, :, 4:].mean(axis=(1, 2))], axis=1)
        halves += pixels.mean() * np.float32(0.1)
        if boxes is None:
            places = [np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], np.float32)] * len(images)
            return RegionBatch.of(list(halves), places, scores=[np.array([0.9, 0.8])] * len(images))
        features = [np.repeat(half[:1], len(own), axis=0) for half, own in zip(halves, boxes, strict=True)]
        return RegionBatch.of(features, [torch.as_tensor(own) for own in boxes])


def save_photos(folder: Path, count: int, seed: int = 0) -> list[tuple[str, Path]]:
    """Photos `photo-000.jpg` … of several sizes, as (id, path)."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    photos = []
    for i in range(count):
        path = folder / f"photo-{i:03d}.jpg"
        height, width = random.integers(12, 40, 2)
        Image.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(path)
        photos.append((path.name, path))
    return photos


def spoil(path: Path, how: str) -> None:
    """Make a picture file one that cannot be read."""
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif how == "text":
        path.write_text("not a picture")
    elif how == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
