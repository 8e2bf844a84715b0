"""Phrase grounding with full supervision: the regions that overlap a phrase's true boxes are what it means, or the
cells that lie in them. Matchers learn from captions alone, and are measured here too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from saccade.batch import Batch, PictureBatch, RegionBatch, TextBatch, phrase_words
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.features.splits import open_groundings
from saccade.metrics.pointing import are_cells
from saccade.models import Grounder, Matcher
from saccade.tasks.base import TaskSpec
from saccade.tasks.grounding import EvalOptions
from saccade.tasks.grounding.evaluate import (
    GroundingAccuracy,
    GroundingSplit,
    right_regions,
    token_span,
    true_boxes,
)
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.pairs import about_each, prepare_captioned, vary_images
from saccade.tasks.prepare import Prepared
from saccade.vision.augment import AugmentConfig


@dataclass(frozen=True)
class GroundingConfig:
    """What counts as right, and which words are known."""

    several: Literal["any", "merged"] = "any"  # of a phrase of several boxes: any of them, or one box around all
    min_count: int = 1  # rarer words of the training sentences are unknown words
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 64  # sentences grounded at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_count eval_batch", "at least 1")


@dataclass(frozen=True)
class GroundingBatch(Batch):
    """Sentences about pictures: sentence t is about picture `owner[t]` of the batch."""

    texts: TextBatch
    images: RegionBatch | PictureBatch
    owner: Int[Tensor, " text"]
    phrases: Float[Tensor, "text phrase word"]  # 1 at the words of each
    boxes: Float[Tensor, "text phrase box 4"]
    real: Bool[Tensor, "text phrase box"]


class GroundingTask:
    """Every sentence of the training split that has phrases with boxes, all its phrases at once."""

    selection = "accuracy"

    def __init__(
        self,
        model: Grounder,
        train: GroundingSplit,
        dev: GroundingSplit,
        config: GroundingConfig,
        augmentation: AugmentConfig,
    ) -> None:
        self.train, self.dev, self.config, self.augmentation = train, dev, config, augmentation
        self.said = [n for n, phrases in enumerate(train.phrases) if phrases]
        if not self.said:
            raise SaccadeError(f"{train.pictures.name}/{train.pictures.split} has no phrase with a box to learn from")
        self.texts = model.read([train.texts[n] for n in self.said])  # word ids are small: all sentences at once
        self.spans = [[token_span(train.texts[n], phrase) for phrase in train.phrases[n]] for n in self.said]
        first = train.images.batch([0])
        self.cells = isinstance(first, RegionBatch) and are_cells(first.boxes[0][first.mask[0]].cpu().numpy())
        self.truth = [[true_boxes(phrase, config.several) for phrase in train.phrases[n]] for n in self.said]

    def __len__(self) -> int:
        return len(self.said)

    def batch(self, indices: Sequence[int]) -> GroundingBatch:
        owners = self.train.pictures.image_of_text[[self.said[i] for i in indices]]
        pictures, owner = np.unique(owners, return_inverse=True)
        texts = replace(self.texts.select(list(indices)), words=()).trimmed()
        truth = [self.truth[i] for i in indices]
        phrases, most = max(map(len, truth)), max(len(own) for boxes in truth for own in boxes)
        boxes = torch.zeros(len(truth), phrases, most, 4)
        real = torch.zeros(len(truth), phrases, most, dtype=torch.bool)
        for row, given in enumerate(truth):
            for phrase, own in enumerate(given):
                boxes[row, phrase, : len(own)] = own
                real[row, phrase, : len(own)] = True
        return GroundingBatch(
            texts,
            self.train.images.batch(pictures.tolist()),
            torch.as_tensor(owner, dtype=torch.long),
            phrase_words([self.spans[i] for i in indices], texts.tokens.shape[1]),
            boxes,
            real,
        )

    def before_loss(self, model: Grounder, batch: GroundingBatch, step: int) -> GroundingBatch:
        return batch

    def graph_batch(self, model: Grounder, batch: GroundingBatch, step: int) -> GroundingBatch | None:
        """A picture for every sentence; regions, words, phrases and boxes padded to a multiple of four."""
        if not isinstance(batch.images, RegionBatch):
            return None
        about = about_each(batch.images, batch.owner)
        (phrases, words), boxes = batch.phrases.shape[1:], batch.real.shape[2]
        owner = torch.arange(len(about), device=about.mask.device)
        padded = replace(
            batch, texts=batch.texts.pad(-words % 4), images=about.pad(-about.mask.shape[1] % 4), owner=owner
        )
        return padded.resize(word=words + -words % 4, phrase=phrases + -phrases % 4, box=boxes + -boxes % 4)

    def loss(self, model: Grounder, batch: GroundingBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        """Binary cross-entropy, summed over the regions, averaged over the phrases."""
        about = about_each(model.extract(vary_images(model, batch.images, self.augmentation)), batch.owner)
        logits = model.ground(about, batch.texts, batch.phrases).float()
        right = right_regions(about.boxes, batch.boxes, batch.real, self.cells).float()
        each = functional.binary_cross_entropy_with_logits(logits, right, reduction="none")
        said = batch.real.any(dim=2)
        return (each * about.mask[:, None] * said[:, :, None]).sum() / said.sum().clamp(min=1), {}

    def evaluate(self, model: Grounder) -> dict[str, float]:
        return GroundingAccuracy().evaluate(model, self.dev, self.config)


def open_grounding_split(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> GroundingSplit:
    return open_groundings(config, split, pixels, device)


def prepare_sentences(train: GroundingSplit, settings: GroundingConfig) -> Prepared:
    return prepare_captioned(train.pictures, settings)


SPEC: TaskSpec[Grounder, GroundingSplit] = TaskSpec(
    name="grounding",
    noun="grounder",
    does="finds what the phrases of a sentence mean",
    protocol=Grounder,
    config=GroundingConfig,
    open=open_grounding_split,
    prepare=prepare_sentences,
    task=GroundingTask,
    evaluator=GroundingAccuracy(),
    predictor=PictureGrounder,
    verbs=("ground", "explain"),
    options=EvalOptions,
    measures=(Matcher,),
)
