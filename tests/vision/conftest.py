"""Simple pictures to see: one or two plain rectangles on grey, with their boxes and colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from saccade.vision.boxes import UNKNOWN
from saccade.vision.detectors.world import (
    PICTURE_ATTRIBUTES,
    REGION_ATTRIBUTES,
    ScenePictures,
    WorldExtractorConfig,
    WorldNetwork,
)

COLOURS = {"red": (210, 40, 40), "green": (40, 170, 60), "blue": (40, 80, 210)}
TINY = WorldExtractorConfig(
    picture_size=64,
    channels=(8, 16, 24, 32),
    map_dim=16,
    roi_dim=16,
    hidden=48,
    dim=40,
    proposals=4,
    kinds=("wide", "tall"),
    colours=tuple(COLOURS),
    facings=("left", "right"),
    backgrounds=("dark", "light"),
)


@dataclass(frozen=True)
class Rectangles:
    """Pictures with what is in them; looks like a split of the world to those who only see it."""

    pixels: np.ndarray  # [image, 64, 64, 3]
    found: list[np.ndarray]
    labelled: ScenePictures

    @property
    def ids(self) -> list[str]:
        return [f"picture-{i}" for i in range(len(self))]

    def __len__(self) -> int:
        return len(self.pixels)

    def image(self, i: int) -> np.ndarray:
        return self.pixels[i]

    def boxes(self, i: int) -> np.ndarray:
        return self.found[i]


def make_rectangles(count: int, seed: int = 0) -> Rectangles:
    random = np.random.default_rng(seed)
    pixels = np.zeros((count, 64, 64, 3), dtype=np.uint8)
    boxes = np.zeros((count, 2, 4), dtype=np.float32)
    real = np.zeros((count, 2), dtype=bool)
    things = np.full((count, 2, len(REGION_ATTRIBUTES)), UNKNOWN)
    places = np.full((count, len(PICTURE_ATTRIBUTES)), UNKNOWN)
    for i in range(count):
        places[i, 0] = random.integers(2)
        pixels[i] = 60 if places[i, 0] == 0 else 150
        for j in range(random.integers(1, 3)):
            kind, colour = random.integers(2), random.integers(3)
            w, h = ((22, 12), (12, 22))[kind]
            x, y = random.integers(1, 31 - w + 1) + 32 * j, random.integers(1, 63 - h)
            pixels[i, y : y + h, x : x + w] = COLOURS[tuple(COLOURS)[colour]]
            boxes[i, j], real[i, j] = np.array([x, y, x + w, y + h]) / 64, True
            things[i, j, REGION_ATTRIBUTES.index("kind")] = kind
            things[i, j, REGION_ATTRIBUTES.index("colour")] = colour
    labelled = ScenePictures(*(torch.from_numpy(a) for a in (pixels, boxes, real, things, places)))
    return Rectangles(pixels, [b[r] for b, r in zip(boxes, real, strict=True)], labelled)


@pytest.fixture(scope="session")
def rectangles() -> Rectangles:
    return make_rectangles(96)


@pytest.fixture(scope="session")
def more_rectangles() -> Rectangles:
    """Others than those that were taught."""
    return make_rectangles(48, seed=5)


@pytest.fixture
def tiny_network() -> WorldNetwork:
    torch.manual_seed(0)
    return WorldNetwork(TINY)
