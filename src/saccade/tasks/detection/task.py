"""Detection: pictures with true boxes, the detector's loss, and a trained detector as users call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.batch import Batch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.models.detectors import Detector
from saccade.tasks.base import TaskSpec
from saccade.tasks.detection import EvalOptions
from saccade.tasks.detection.data import BoxedSplit, label_names, open_boxes
from saccade.tasks.detection.evaluate import DetectionEvaluator, detector_figures
from saccade.tasks.predict import Predictor, listed
from saccade.tasks.prepare import Prepared
from saccade.vision import RegionDescription, RegionExtractor
from saccade.vision.pictures import Picture


@dataclass(frozen=True)
class DetectionConfig:
    """Which names are learned, and how the dev split is measured."""

    class_count: int = 15  # a name is a class if it stands on so many boxes
    attribute_count: int = 15  # the same for attributes
    eval_batch: int = 64  # pictures measured at once

    def __post_init__(self) -> None:
        for name in ("class_count", "attribute_count", "eval_batch"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")


class DetectionTask:
    """All pictures are decoded once and kept as bytes; they are varied on the device."""

    def __init__(self, model: Detector, train: BoxedSplit, dev: BoxedSplit, config: DetectionConfig) -> None:
        self.train, self.dev = model.tensors(train.pictures), model.tensors(dev.pictures)
        self.selection, self.config = model.selection, config

    def __len__(self) -> int:
        return len(self.train)

    def batch(self, indices: Sequence[int]) -> Batch:
        return self.train.select(indices)

    def loss(self, model: Detector, batch: Batch, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        losses = model.losses(batch)
        return torch.stack(list(losses.values())).sum(), losses

    def evaluate(self, model: Detector) -> dict[str, float]:
        return detector_figures(model, self.dev, self.config.eval_batch)


class PictureDetector(Predictor[Detector]):
    """Finds the regions of pictures and names them.

    >>> saccade.load("runs/bottomup").detect("photo.jpg")[0][0].text
    """

    @cached_property
    def extractor(self) -> RegionExtractor:
        return self.model.as_extractor()

    def detect(
        self, images: Picture | Sequence[Picture], boxes: Sequence[np.ndarray] | None = None
    ) -> list[list[RegionDescription]]:
        """The regions of each picture with their names; of `boxes` (one array in 0..1 a picture) instead, if given."""
        return self.extractor.describe(listed(images), boxes)

    def extract(self, images: Picture | Sequence[Picture], boxes: Sequence[np.ndarray] | None = None) -> RegionBatch:
        """The regions' vectors, as `saccade extract` keeps them."""
        return self.extractor.extract(listed(images), boxes)


@dataclass(frozen=True)
class PreparedDetector(Prepared):
    attributes: tuple[str, ...] = ()  # beside the labels, which are the classes


def prepare(train: BoxedSplit, settings: DetectionConfig) -> PreparedDetector:
    classes, attributes = label_names(train.pictures, settings.class_count, settings.attribute_count)
    facts = {
        "pictures": len(train.pictures),
        "boxes": train.box_count,
        "classes": len(classes),
        "attributes": len(attributes),
    }
    return PreparedDetector(labels=classes, attributes=attributes, facts=facts)


def build(kind: type[Detector], config: Any, prepared: Prepared) -> Detector:
    """A fresh detector of these labels."""
    assert isinstance(prepared, PreparedDetector)
    model = kind(kind.with_labels(config, prepared.labels, prepared.attributes))
    model.begin()
    return model


SPEC: TaskSpec[Detector, BoxedSplit] = TaskSpec(
    name="detection",
    noun="detector",
    does="finds and names the regions of pictures",
    protocol=Detector,
    config=DetectionConfig,
    open=open_boxes,
    prepare=prepare,
    task=lambda model, train, dev, settings, vary: DetectionTask(model, train, dev, settings),
    evaluator=DetectionEvaluator(),
    predictor=PictureDetector,
    verbs=("detect", "extract"),
    options=EvalOptions,
    build=build,
)
