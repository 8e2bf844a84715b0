"""Toy pictures of three regions, one of which is a thing of some colour and kind: for all tasks of a joint run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from saccade.batch import RegionBatch
from saccade.data.records import CaptionedImages, GroundedPhrase, Groundings, Questions
from saccade.models import HierarchicalConfig
from saccade.tasks.joint.task import JointSplit

COLOURS, KINDS = ("red", "green", "blue"), ("cube", "ball")
BOXES = np.array([[0, 0, 0.3, 1], [0.3, 0, 0.6, 1], [0.6, 0, 1, 1]], dtype=np.float32)
SMALL = HierarchicalConfig(
    dim=16, lstm_dim=8, word_dim=8, layers=2, heads=2, retrieval_layer=1, grounding_layer=1, answering_layer=2
)


class Scenes:
    """Features say the colour and kind of the thing at `place` outright."""

    def __init__(self, count: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.colour, self.kind, self.place = (draw.integers(most, size=count) for most in (3, 2, 3))
        self.ids, self.dim = tuple(f"{seed}-{n}" for n in range(count)), 5

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: list[int]) -> RegionBatch:
        features = torch.zeros(len(indices), 3, 5)
        for row, index in enumerate(indices):
            features[row, self.place[index], self.colour[index]] = 1
            features[row, self.place[index], 3 + self.kind[index]] = 1
        boxes = torch.tensor(BOXES).expand(len(indices), 3, 4)
        return RegionBatch(features, torch.ones(len(indices), 3, dtype=torch.bool), boxes)


def captioned(count: int, seed: int) -> CaptionedImages:
    scenes = Scenes(count, seed)
    texts = tuple(f"a {COLOURS[c]} {KINDS[k]} here" for c, k in zip(scenes.colour, scenes.kind, strict=True))
    return CaptionedImages("toys", f"split{seed}", scenes, texts, np.arange(count), "toys")  # type: ignore[arg-type]


def grounded(count: int, seed: int) -> Groundings[CaptionedImages]:
    pictures = captioned(count, seed)
    places = pictures.images.place  # type: ignore[attr-defined]
    return Groundings(pictures, tuple((GroundedPhrase(0, 3, BOXES[[place]]),) for place in places))


def asked(count: int, seed: int) -> Questions[CaptionedImages]:
    pictures = captioned(count, seed)
    colours: Any = pictures.images.colour  # type: ignore[attr-defined]
    about = CaptionedImages(
        "toys", pictures.split, pictures.images, ("what colour is it?",) * count, np.arange(count), "toys"
    )
    return Questions(about, tuple((COLOURS[c],) for c in colours), ("colour",) * count, pictures.images.ids)  # type: ignore[arg-type]


def scenes(count: int, seed: int) -> JointSplit:
    """A split of which every part reads its own."""
    opened = {"matching": captioned, "grounding": grounded, "answering": asked}
    return JointSplit("toys", lambda part: opened[part](count, seed))
