"""Finding moments: learn when in a video each sentence happens, in three stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Batch, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.features import open_moments
from saccade.models import Matcher, MomentFinder
from saccade.models.base.moment_finder import Stage
from saccade.tasks.base import MakeSampler, Sampler, TaskSpec
from saccade.tasks.moments import EvalOptions
from saccade.tasks.moments.evaluate import MAIN, MomentRecall, MomentSplit, lengths, truth_of
from saccade.tasks.moments.predict import VideoSearcher
from saccade.tasks.pairs import about_each, prepare_captioned
from saccade.vision.augment import AugmentConfig


@dataclass(frozen=True)
class MomentsConfig:
    """How long each stage is, and which words are known."""

    stage_epochs: tuple[int, int] = (10, 5)  # of the first two; the third is the rest
    stage_rates: tuple[float, float, float] = (1.0, 0.01, 0.0001)  # what the learning rate is multiplied by
    min_count: int = 1  # rarer words of the training sentences are unknown words
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 64  # sentences looked for at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_count eval_batch", "at least 1")
        if min(self.stage_epochs) < 0 or min(self.stage_rates) < 0:
            raise SaccadeError("task.stage_epochs and task.stage_rates must be zero or more")


@dataclass(frozen=True)
class MomentBatch(Batch):
    """Sentences about videos: sentence t is about video `owner[t]` of the batch, and happens in `spans[t]`."""

    texts: TextBatch
    videos: RegionBatch
    owner: Int[Tensor, " text"]
    spans: Float[Tensor, "text 2"]  # as shares of the video


class FirstStage(MomentBatch):
    """Of each stage the loss has another form, and so its batches are of another class."""


class SecondStage(MomentBatch): ...


class ThirdStage(MomentBatch): ...


class MomentsTask:
    """Every sentence of the training split with its video; of several moments of a sentence, the first."""

    selection = MAIN

    def __init__(
        self,
        model: MomentFinder,
        train: MomentSplit,
        dev: MomentSplit,
        config: MomentsConfig,
        augmentation: AugmentConfig,
    ) -> None:
        self.train, self.dev, self.config = train, dev, config
        self.texts = replace(model.read(train.texts), words=())  # word ids are small: all sentences at once
        truth = truth_of(train, lengths(train))
        self.spans = torch.from_numpy(np.stack([own[0] for own in truth])).float().clamp(0, 1)
        self.steps_per_epoch = 1

    def __len__(self) -> int:
        return len(self.train.texts)

    def sampler(self, make: MakeSampler) -> Sampler:
        found = make(len(self), None)
        self.steps_per_epoch = found.steps_per_epoch
        return found

    def stage(self, step: int) -> Stage:
        first, second = np.cumsum(self.config.stage_epochs).tolist()
        epoch = step // self.steps_per_epoch
        return 1 if epoch < first else 2 if epoch < second else 3

    def rate(self, step: int) -> float:
        return self.config.stage_rates[self.stage(step) - 1]

    def batch(self, indices: Sequence[int]) -> MomentBatch:
        rows = torch.as_tensor(list(indices))
        videos, owner = np.unique(self.train.pictures.image_of_text[list(indices)], return_inverse=True)
        frames = self.train.pictures.regions.batch(videos.tolist())
        return MomentBatch(
            self.texts.select(rows).trimmed(), frames, torch.as_tensor(owner, dtype=torch.long), self.spans[rows]
        )

    def before_loss(self, model: MomentFinder, batch: MomentBatch, step: int) -> MomentBatch:
        return batch

    def graph_batch(self, model: MomentFinder, batch: MomentBatch, step: int) -> MomentBatch:
        """A video for every sentence; frames and words padded to a multiple of eight and four."""
        kind = {1: FirstStage, 2: SecondStage, 3: ThirdStage}[self.stage(step)]
        videos = about_each(batch.videos, batch.owner)
        words = batch.texts.pad(-batch.texts.mask.shape[1] % 4)
        own = torch.arange(len(videos), device=videos.mask.device)
        return kind(words.tables(), videos.pad(-videos.mask.shape[1] % 8), own, batch.spans)

    def loss(self, model: MomentFinder, batch: MomentBatch, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        about = about_each(batch.videos, batch.owner)
        losses = model.losses(about, batch.texts, batch.spans, self.stage(step))
        return torch.stack([*losses.values()]).sum(), losses

    def evaluate(self, model: MomentFinder) -> dict[str, float]:
        return MomentRecall().evaluate(model, self.dev, self.config)


def open_moment_split(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> MomentSplit:
    """Raises: SaccadeError if a model with a backbone of its own asks."""
    if pixels is not None:
        raise SaccadeError("moments are found in frames of a fixed extractor: give data.extractor, not a backbone")
    return open_moments(config, split, None, device)


SPEC: TaskSpec[MomentFinder, MomentSplit] = TaskSpec(
    name="moments",
    noun="moment finder",
    does="finds when in a video happens what a sentence says",
    protocol=MomentFinder,
    config=MomentsConfig,
    open=open_moment_split,
    prepare=lambda train, settings: prepare_captioned(train.pictures, settings),
    task=MomentsTask,
    evaluator=MomentRecall(),
    predictor=VideoSearcher,
    verbs=("moment", "explain"),
    options=EvalOptions,
    next_steps=("saccade eval {run}", 'saccade moment VIDEO "a person opens the door" --model {run}'),
    measures=(Matcher,),
)
