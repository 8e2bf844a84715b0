"""Detection as the trainer knows it: pictures with true boxes, the detector's loss, its figures on the dev split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.batch import Batch
from saccade.core.errors import SaccadeError
from saccade.models.detectors import Detector
from saccade.tasks.detection.data import BoxedSplit
from saccade.tasks.detection.evaluate import detector_figures


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
