"""Detection, as the rest of the house knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saccade.models.detectors import Detector
from saccade.tasks.base import TaskSpec
from saccade.tasks.detection.data import BoxedSplit, label_names, open_boxes
from saccade.tasks.detection.evaluate import DetectionEvaluator
from saccade.tasks.detection.options import EvalOptions
from saccade.tasks.detection.predict import PictureDetector
from saccade.tasks.detection.task import DetectionConfig, DetectionTask
from saccade.tasks.prepare import Prepared


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
