"""Captioning: say what people said of a picture, word by word; then say what a metric likes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import CaptionState, PairBatch, RegionBatch, TextBatch, Thought, Told
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages
from saccade.decoding import DecodingConfig
from saccade.models.base.captioner import NEVER_SAID, Captioner, never_said
from saccade.nn import present_precision
from saccade.tasks.base import Loss
from saccade.tasks.captioning.evaluate import caption_figures
from saccade.tasks.captioning.self_critical import RewardConfig, SelfCritical, SpokenBatch
from saccade.tasks.pairs import PairTask, Read, cut, vary_images
from saccade.vision.augment import AugmentConfig


@dataclass(frozen=True)
class CaptioningConfig:
    """Cross-entropy, and from `reward.after` on self-critical training."""

    longest: int = 20  # words of a caption; what people said beyond is cut
    min_count: int = 5  # words seen less often in training are unknown words
    items: Literal["pairs", "pictures"] = "pairs"  # what a batch counts: captions, or pictures with all their captions
    label_smoothing: float = 0.0  # this much of every label goes to all words alike
    scheduled_sampling: float = 0.0  # at most this often a model is given its own last word instead of the caption's
    scheduled_sampling_start: int = 0  # steps before the first time
    scheduled_sampling_every: int = 1000  # … from where the chance grows by 0.05 every so many steps
    reward: RewardConfig = field(default_factory=RewardConfig)
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # pictures captioned at once
    decoding: DecodingConfig = field(default_factory=lambda: DecodingConfig(how="greedy", longest=21))  # of dev

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise SaccadeError(f"longest must be at least 1 word, not {self.longest}")
        if not 0 <= self.label_smoothing < 1:
            raise SaccadeError(f"label_smoothing must be at least 0 and less than 1, not {self.label_smoothing}")
        if not 0 <= self.scheduled_sampling <= 1:
            raise SaccadeError(f"scheduled_sampling is a chance between 0 and 1, not {self.scheduled_sampling}")
        if self.scheduled_sampling_every < 1 or self.eval_batch < 1:
            raise SaccadeError("scheduled_sampling_every and eval_batch must be at least 1")

    def scheduled_sampling_chance(self, step: int) -> float:
        """How often a word is the model's own at this step of the run."""
        if not self.scheduled_sampling or step < self.scheduled_sampling_start:
            return 0.0
        return min(
            self.scheduled_sampling,
            0.05 * (1 + (step - self.scheduled_sampling_start) // self.scheduled_sampling_every),
        )


class CaptioningTask(PairTask[CaptioningConfig]):
    """Pictures and captions of theirs in one batch; the model says each caption of its own picture."""

    selection = "cider_d"

    def __init__(
        self,
        train: CaptionedImages,
        dev: CaptionedImages,
        read: Read,
        config: CaptioningConfig,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        super().__init__(train, dev, read, config, augmentation)
        self.texts = cut(self.texts, config.longest)

    def before_loss(self, model: Captioner, batch: PairBatch, step: int) -> PairBatch | SpokenBatch:
        """Pictures are varied; from `reward.after` on they are also spoken of, and what was said is judged."""
        batch = replace(batch, images=vary_images(model, batch.images, self.augmentation))
        return self.self_critical.say(model, batch) if self.config.reward.begun(step) else batch

    def graph_batch(
        self, model: Captioner, batch: PairBatch | SpokenBatch, step: int
    ) -> PairBatch | SpokenBatch | None:
        """Captions padded to the longest there is, regions to a multiple of four; unless the loss still changes."""
        sampled = isinstance(batch, PairBatch) and self.config.scheduled_sampling_chance(step)
        if sampled or not isinstance(batch.images, RegionBatch) or not model.settled:
            return None
        images = replace(batch.images, ids=()).pad(-batch.images.mask.shape[1] % 4)
        size = self.config.longest + 2  # with <start> and <end>
        texts = TextBatch(batch.texts.tokens, batch.texts.mask)
        return replace(batch, images=images, texts=texts.pad(size - texts.tokens.shape[1]))

    def loss(self, model: Captioner, batch: PairBatch | SpokenBatch, step: int) -> Loss:
        images = model.extract(batch.images)
        if isinstance(batch, SpokenBatch):
            return self.self_critical.loss(model, images, batch)
        state = model.start_lesson(images, batch.texts, batch.owner)
        told = self._tell(model, state, batch.texts.tokens[:, :-1], self.config.scheduled_sampling_chance(step))
        labels, wanted = batch.texts.tokens[:, 1:], batch.texts.mask[:, 1:]
        missed = told.missed(labels, wanted)
        loss = missed.sum() / wanted.sum()
        if self.config.label_smoothing:
            share = self.config.label_smoothing
            loss = (1 - share) * loss + share * evenly_missed(told, wanted).sum() / wanted.sum()
        own = model.own_losses(told, labels, missed, wanted)
        if own:
            return loss + sum(own.values()), {"word_loss": loss, **own}
        return loss, {}

    def _tell(self, model: Captioner, state: CaptionState, words: Int[Tensor, "text step"], chance: float) -> Told:
        """Teacher forcing; with `chance`, a model hears what it would have said itself."""
        if not chance:
            return model.tell(state, words)
        thoughts: list[Thought] = []
        for given in words.unbind(dim=1):
            if thoughts:
                with torch.no_grad(), present_precision(given):  # no short form of a weight is kept for later
                    said = torch.multinomial(model.log_probabilities(thoughts[-1].hidden).exp(), 1)[:, 0]
                given = torch.where(torch.rand(len(given), device=given.device) < chance, said, given)
            thoughts.append(model.advance(given, state))
            state = thoughts[-1].state
        return model.told(thoughts)

    @cached_property
    def self_critical(self) -> SelfCritical:
        """Made when it is first needed: all captions are counted for it."""
        return SelfCritical(self.train, self.texts, self.config.reward, self.config.longest)

    def evaluate(self, model: Captioner) -> dict[str, float]:
        return caption_figures(model, self.dev, self.config.decoding, self.config.eval_batch)


def evenly_missed(told: Told, wanted: Bool[Tensor, "text step"]) -> Float[Tensor, "text step"]:
    """−log p averaged over all words that can be said."""
    silent = never_said(told.log_probabilities)
    total = told.log_probabilities.masked_fill(silent, 0).sum(dim=2)
    return -total / (len(silent) - len(NEVER_SAID)) * wanted
