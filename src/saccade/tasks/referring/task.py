"""Referring: learn which of several boxes each expression or dialog means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from saccade.batch import Batch, RegionBatch, StepBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.features import open_referrals
from saccade.models import Referrer
from saccade.tasks.base import TaskSpec
from saccade.tasks.pairs import about_each
from saccade.tasks.prepare import Prepared, build_model, prepare_words
from saccade.tasks.referring import EvalOptions
from saccade.tasks.referring.evaluate import (
    Choice,
    ReferringAccuracy,
    ReferringSplit,
    candidates_of,
    choice_of,
    read_split,
    read_texts,
    shown_candidates,
    shown_images,
    shown_texts,
)
from saccade.tasks.referring.predict import PictureReferrer
from saccade.vision.augment import AugmentConfig


@dataclass(frozen=True)
class ReferringConfig:
    """Which texts a model learns from, and what it is shown."""

    reads: Literal["both", "expressions", "dialogs"] = "both"  # of a data set that has both
    # What a floor is shown: `text` no more than the words, `boxes` also where the candidates lie and their categories,
    # `picture` all but the words.
    shown: Literal["both", "text", "boxes", "picture"] = "both"
    among: Literal["given", "all"] = "given"  # the boxes that the data set gives each text, or all of its picture
    min_count: int = 1  # rarer words of the training texts are unknown words
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # texts read at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_count eval_batch", "at least 1")


@dataclass(frozen=True)
class ReferringBatch(Batch):
    """Texts about pictures: text t is about picture `owner[t]` of the batch, and means candidate `target[t]`."""

    texts: StepBatch
    images: RegionBatch
    boxes: RegionBatch  # of the pictures
    owner: Int[Tensor, " text"]
    place: Int[Tensor, "text candidate"]
    mask: Bool[Tensor, "text candidate"]
    categories: Int[Tensor, "text candidate"]
    target: Int[Tensor, " text"]


class ReferringTask:
    """Every text of the training split, with its picture and the boxes it chooses among."""

    selection = "accuracy"

    def __init__(
        self,
        model: Referrer,
        train: ReferringSplit,
        dev: ReferringSplit,
        config: ReferringConfig,
        augmentation: AugmentConfig,
    ) -> None:
        self.train, self.dev, self.config = read_split(train, config), dev, config
        self.texts = replace(model.read_spoken(self.train.spoken), shown=())  # word ids are small: all texts at once
        self.choice = choice_of(model, self.train, range(len(self.train.texts)))
        self.target = torch.tensor(self.train.targets, dtype=torch.long)

    def __len__(self) -> int:
        return len(self.train.texts)

    def batch(self, indices: Sequence[int]) -> ReferringBatch:
        rows = torch.as_tensor(list(indices))
        pictures, owner = np.unique(self.train.pictures.image_of_text[list(indices)], return_inverse=True)
        choice = Choice(*(value[rows] for value in self.choice))
        most = int(choice.mask.sum(dim=1).max())
        images = self.train.images.batch(pictures.tolist())
        assert isinstance(images, RegionBatch)
        assert self.train.features is not None
        return ReferringBatch(
            self.texts.select(rows).trimmed(),
            images,
            self.train.features.batch(pictures.tolist()),
            torch.as_tensor(owner, dtype=torch.long),
            choice.place[:, :most],
            choice.mask[:, :most],
            choice.categories[:, :most],
            self.target[rows],
        )

    def before_loss(self, model: Referrer, batch: ReferringBatch, step: int) -> ReferringBatch:
        return batch

    def graph_batch(self, model: Referrer, batch: ReferringBatch, step: int) -> ReferringBatch:
        """A picture for every text; regions, boxes, candidates and steps padded to a multiple of four."""
        images, boxes = (about_each(side, batch.owner) for side in (batch.images, batch.boxes))
        steps, words = batch.texts.mask.shape[1:]
        padded = replace(
            batch,
            texts=batch.texts.resize(step=steps + -steps % 4, word=words + -words % 4),
            images=images.pad(-images.mask.shape[1] % 4),
            boxes=boxes.pad(-boxes.mask.shape[1] % 4),
            owner=torch.arange(len(images), device=images.mask.device),
        )
        candidates = batch.mask.shape[1]
        return padded.resize(candidate=candidates + -candidates % 4)

    def loss(self, model: Referrer, batch: ReferringBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        about, shown = about_each(batch.images, batch.owner), self.config.shown
        boxes = candidates_of(batch.boxes, batch.owner, Choice(batch.place, batch.mask, batch.categories))
        given = shown_images(about, shown), shown_candidates(boxes, shown), shown_texts(batch.texts, shown)
        return model.loss(model.refer(*given), batch.target), {}

    def evaluate(self, model: Referrer) -> dict[str, float]:
        return ReferringAccuracy().evaluate(model, self.dev, self.config)


def open_referring_split(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> ReferringSplit:
    """Raises: SaccadeError if a model with a backbone of its own asks."""
    if pixels is not None:
        raise SaccadeError("a referrer reads the boxes of a fixed extractor: give data.extractor, not a backbone")
    return open_referrals(config, split, device)


def prepare_texts(train: ReferringSplit, settings: ReferringConfig) -> Prepared:
    """The words of the texts, and the categories of the boxes that they choose among."""
    kept = read_texts(train, settings.reads)
    categories = tuple(sorted({name for own in kept.candidates for name in own.categories if name}))
    words = prepare_words(kept.texts, settings.min_count, settings.vectors)
    note = f"{sum(kept.dialogs):,} dialogs and {len(kept.texts) - sum(kept.dialogs):,} expressions, "
    return replace(
        words,
        labels=categories,
        widths={"region_dim": train.pictures.regions.dim},
        extractor=train.pictures.extractor,
        notes=(*words.notes, note + f"boxes of {len(categories)} categories"),
        facts={**words.facts, "categories": len(categories)},
    )


def build_referrer(kind: type[Referrer], config: Any, prepared: Prepared) -> Referrer:
    """A fresh model that knows the categories of the training split."""
    return build_model(kind, replace(config, categories=prepared.labels), prepared)


SPEC: TaskSpec[Referrer, ReferringSplit] = TaskSpec(
    name="referring",
    noun="referrer",
    does="finds which box an expression or a dialog means",
    protocol=Referrer,
    config=ReferringConfig,
    open=open_referring_split,
    prepare=prepare_texts,
    task=ReferringTask,
    evaluator=ReferringAccuracy(),
    predictor=PictureReferrer,
    verbs=("refer", "explain"),
    options=EvalOptions,
    next_steps=("saccade eval {run}", 'saccade refer PICTURE "the red cube" --model {run}'),
    build=build_referrer,
)
