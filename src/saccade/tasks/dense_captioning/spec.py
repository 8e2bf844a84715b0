"""Dense captioning, as the rest of the house knows it."""

from __future__ import annotations

from typing import Any

from saccade.data import DataConfig
from saccade.features.splits import PhrasedPictures, open_region_phrases
from saccade.models import DenseCap
from saccade.tasks.base import ClaimDefaults, TaskSpec
from saccade.tasks.dense_captioning.evaluate import DensePrecision
from saccade.tasks.dense_captioning.options import EvalOptions
from saccade.tasks.dense_captioning.predict import PictureDescriber
from saccade.tasks.dense_captioning.task import DenseCaptioningConfig, DenseCaptioningTask
from saccade.tasks.prepare import Prepared, prepare_words


def open_phrased(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> PhrasedPictures:
    """Pictures whose boxes have phrases: always pixels, read on demand."""
    return open_region_phrases(config, split)


def prepare(train: PhrasedPictures, settings: Any) -> Prepared:
    return prepare_words(train.texts, settings.min_count, settings.vectors)


WORLD = ClaimDefaults(
    ("eval_pictures=300", "epochs=6"),
    "every thing that can be seen has a box and phrases; six epochs; METEOR matches words and stems",
)

SPEC: TaskSpec[DenseCap, PhrasedPictures] = TaskSpec(
    name="dense_captioning",
    noun="dense captioner",
    does="describes parts of pictures",
    protocol=DenseCap,
    config=DenseCaptioningConfig,
    open=open_phrased,
    prepare=prepare,
    task=lambda model, train, dev, settings, vary: DenseCaptioningTask(train, dev, model.read, settings, vary),
    evaluator=DensePrecision(),
    predictor=PictureDescriber,
    verbs=("densecap",),
    options=EvalOptions,
    next_steps=("saccade densecap PHOTO --model {run} -o phrases.png",),
    claims={"world": WORLD},
)
