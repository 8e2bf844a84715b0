"""Visual entailment (Xie, Lai, Doran, Kadav 2019): sentences about pictures, each entailed, contradicted or left open.

It is answering with three answers. Sentences alone tell much of the label, since people who were asked to contradict a
picture wrote of sleeping and nobody: a model that is shown no picture is the floor (`shown=hypothesis`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from saccade.core.config import check_ranges
from saccade.data import DataConfig
from saccade.features import open_questions
from saccade.metrics.answers import by_kind
from saccade.models import load_model
from saccade.models.base.fusion import LABELS, FusionEntailer
from saccade.tasks.answering.evaluate import AnswerAccuracy, QuestionSplit, answer_all
from saccade.tasks.answering.task import AnsweringConfig, AnsweringTask, PictureAnswerer
from saccade.tasks.base import TaskSpec
from saccade.tasks.entailment import EvalOptions
from saccade.tasks.evaluator import EvalRequest, Evaluation, SplitForModels
from saccade.tasks.prepare import Prepared, prepare_words


@dataclass(frozen=True)
class EntailmentConfig:
    """What a model is shown."""

    shown: Literal["both", "hypothesis", "picture"] = "both"  # the sentence alone: the floor
    min_count: int = 1  # of words, where the vocabulary is one of whole words
    vectors: str | None = None
    eval_batch: int = 256  # sentences judged at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_count eval_batch", "at least 1")


class EntailmentAccuracy(AnswerAccuracy):
    """Accuracy in per cent, of all sentences and of each label."""

    metrics: ClassVar = {"accuracy": "accuracy", "mean_kind": "mean over labels"}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every figure, a column for every model, beside the most frequent label of the split."""
        splits = SplitForModels(request.data, request.split)
        found: dict[str, dict[str, float]] = {}
        notes: list[str] = []
        for folder in request.models:
            model = load_model(folder, FusionEntailer).to(request.device)
            data: QuestionSplit = splits.regions_for(model, folder)
            settings: EntailmentConfig = request.settings.get(folder, EntailmentConfig())
            if not found:
                most = max(LABELS, key=data.kinds.count)
                found["most frequent"] = accuracies([most] * len(data.kinds), data.kinds)
            said = answer_all(model, data, settings.eval_batch, settings.shown)
            found[folder] = accuracies(said, data.kinds)
            if settings.shown != "both":
                notes.append(f"{folder} was shown the {settings.shown} alone")
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.images)} pictures, {len(data.texts)} sentences; "
            "per cent",
            ("sentences", *found),
            tuple((name, *(f"{own[name]:.1f}" for own in found.values())) for name in next(iter(found.values()))),
            {"data": data.pictures.name, "split": data.pictures.split, "results": found},
            tuple(notes),
        )


def accuracies(said: list[str], true: tuple[str, ...]) -> dict[str, float]:
    """Of all sentences, of each label, and the mean over labels, in per cent."""
    right = 100.0 * (np.array(said) == np.array(true))
    labels = by_kind(right, true)
    known = {name: labels[name] for name in LABELS if name in labels}
    return {"accuracy": float(right.mean()), **known, "mean over labels": float(np.mean([*known.values()]))}


def prepare_entailment(train: QuestionSplit, settings: EntailmentConfig) -> Prepared:
    """The sentences' words, and the width of the regions if the pictures come as such."""
    words = prepare_words(train.texts, settings.min_count, settings.vectors)
    widths = {"region_dim": train.pictures.regions.dim} if hasattr(train.images, "dim") else {}
    return replace(words, labels=LABELS, widths=widths, extractor=train.pictures.extractor)


def open_entailment(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> QuestionSplit:
    return open_questions(config, split, pixels, device, "entailment")


class PictureEntailer(PictureAnswerer):
    """A trained entailer: a picture and a sentence in, how likely each label is out."""

    uses = (
        replace(
            PictureAnswerer.uses[0],
            verb="entail",
            does="Whether a picture entails a sentence",
            text="sentence",
            example="people are outdoors",
        ),
    )


def entailment_task(
    model: FusionEntailer, train: Any, dev: Any, config: EntailmentConfig, augmentation: Any
) -> AnsweringTask:
    """Sentences are learned from as questions are."""
    shown = config.shown if config.shown != "hypothesis" else "question"
    return AnsweringTask(model, train, dev, AnsweringConfig(shown=shown, eval_batch=config.eval_batch), augmentation)


SPEC: TaskSpec[FusionEntailer, QuestionSplit] = TaskSpec(
    name="entailment",
    noun="entailer",
    does="tells whether a picture entails a sentence",
    protocol=FusionEntailer,
    config=EntailmentConfig,
    open=open_entailment,
    prepare=prepare_entailment,
    task=entailment_task,
    evaluator=EntailmentAccuracy(),
    predictor=PictureEntailer,
    verbs=("ask", "explain"),
    options=EvalOptions,
    next_steps=("saccade eval {run}{split}", 'saccade ask PHOTO "people are outdoors" --model {run}'),
)
