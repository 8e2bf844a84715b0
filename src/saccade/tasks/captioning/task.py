"""Captioning: say what people said of a picture, word by word; then say what a metric likes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import CaptionState, PairBatch, RegionBatch, StepOutput, TeacherForced, TextBatch
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.decoding import DecodingConfig
from saccade.models import Captioner
from saccade.models.base.captioner import NEVER_SAID, never_said
from saccade.ops import current_autocast
from saccade.tasks.base import ClaimDefaults, Loss, TaskSpec
from saccade.tasks.captioning.evaluate import CaptionScores, caption_figures
from saccade.tasks.captioning.options import EvalOptions
from saccade.tasks.captioning.predict import PictureCaptioner
from saccade.tasks.captioning.self_critical import RewardConfig, SelfCritical, SpokenBatch
from saccade.tasks.pairs import PairTask, cut, open_captioned, prepare_captioned, vary_images


@dataclass(frozen=True)
class CaptioningConfig:
    """Cross-entropy, and from `reward.after` on self-critical training."""

    max_words: int = 20  # words of a caption; what people said beyond is cut
    min_count: int = 5  # rarer words of the training captions are unknown words
    items: Literal["pairs", "pictures"] = "pairs"  # what a batch counts: captions, or pictures with all their captions
    label_smoothing: float = 0.0  # this much of every label goes to all words alike
    scheduled_sampling: float = 0.0  # at most this often a model is given its own last word instead of the caption's
    scheduled_sampling_start: int = 0  # steps before the first time
    scheduled_sampling_every: int = 1000  # … from where the chance grows by 0.05 every so many steps
    reward: RewardConfig = field(default_factory=RewardConfig)
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # pictures captioned at once
    decoding: DecodingConfig = field(default_factory=lambda: DecodingConfig(strategy="greedy", max_length=21))  # of dev

    def __post_init__(self) -> None:
        if self.max_words < 1:
            raise SaccadeError(f"max_words must be at least 1 word, not {self.max_words}")
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

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.texts = cut(self.texts, self.config.max_words)

    def before_loss(self, model: Captioner, batch: PairBatch, step: int) -> PairBatch | SpokenBatch:
        """Pictures are varied; from `reward.after` on they are also captioned, and the captions rewarded."""
        batch = replace(batch, images=vary_images(model, batch.images, self.augmentation))
        return self.self_critical.say(model, batch) if self.config.reward.begun(step) else batch

    def graph_batch(
        self, model: Captioner, batch: PairBatch | SpokenBatch, step: int
    ) -> PairBatch | SpokenBatch | None:
        """Captions padded to the longest there is, regions to a multiple of four; unless the loss still changes."""
        sampled = isinstance(batch, PairBatch) and self.config.scheduled_sampling_chance(step)
        if sampled or not isinstance(batch.images, RegionBatch) or not model.is_static:
            return None
        images = replace(batch.images, ids=()).pad(-batch.images.mask.shape[1] % 4)
        size = self.config.max_words + 2  # with <start> and <end>
        texts = TextBatch(batch.texts.tokens, batch.texts.mask)
        return replace(batch, images=images, texts=texts.pad(size - texts.tokens.shape[1]))

    def loss(self, model: Captioner, batch: PairBatch | SpokenBatch, step: int) -> Loss:
        images = model.extract(batch.images)
        if isinstance(batch, SpokenBatch):
            return self.self_critical.loss(model, images, batch)
        state = model.start_training(images, batch.texts, batch.owner)
        forced = self._teacher_force(
            model, state, batch.texts.tokens[:, :-1], self.config.scheduled_sampling_chance(step)
        )
        labels, wanted = batch.texts.tokens[:, 1:], batch.texts.mask[:, 1:]
        nll = forced.nll(labels, wanted)
        loss = nll.sum() / wanted.sum()
        if self.config.label_smoothing:
            share = self.config.label_smoothing
            loss = (1 - share) * loss + share * uniform_nll(forced, wanted).sum() / wanted.sum()
        own = model.own_losses(forced, labels, nll, wanted)
        if own:
            return loss + sum(own.values()), {"word_loss": loss, **own}
        return loss, {}

    def _teacher_force(
        self, model: Captioner, state: CaptionState, words: Int[Tensor, "text step"], chance: float
    ) -> TeacherForced:
        """Teacher forcing; with `chance`, a word is one that the model draws itself."""
        if not chance:
            return model.teacher_force(state, words)
        outputs: list[StepOutput] = []
        for given in words.unbind(dim=1):
            if outputs:
                with torch.no_grad(), current_autocast(given):  # no short form of a weight is kept for later
                    said = torch.multinomial(model.log_probabilities(outputs[-1].hidden).exp(), 1)[:, 0]
                given = torch.where(torch.rand(len(given), device=given.device) < chance, said, given)
            outputs.append(model.step(given, state))
            state = outputs[-1].state
        return model.stack_steps(outputs)

    @cached_property
    def self_critical(self) -> SelfCritical:
        """Made when it is first needed: all captions are counted for it."""
        return SelfCritical(self.train, self.texts, self.config.reward, self.config.max_words)

    def evaluate(self, model: Captioner) -> dict[str, float]:
        return caption_figures(model, self.dev, self.config.decoding, self.config.eval_batch)


def uniform_nll(forced: TeacherForced, wanted: Bool[Tensor, "text step"]) -> Float[Tensor, "text step"]:
    """−log p averaged over all words that can be said."""
    silent = never_said(forced.log_probabilities)
    total = forced.log_probabilities.masked_fill(silent, 0).sum(dim=2)
    return -total / (len(silent) - len(NEVER_SAID)) * wanted


NOTE = "captions are found by a beam of 3; METEOR matches words and stems"
WORLD = ClaimDefaults(("patience=0", "decoding.strategy=beam", "decoding.num_beams=3", "decoding.max_length=31"), NOTE)
FLICKR8K = ClaimDefaults(
    (
        *("items=pictures", "task.max_words=20", "min_count=3", "epochs=14", "batch_size=64", "optimiser=adamw"),
        *("learning_rate=0.001", "weight_decay=0.0001", "schedule=cosine", "warmup_steps=60", "average=0.99"),
        *("patience=0", "decoding.strategy=beam", "decoding.num_beams=3", "decoding.max_length=21"),
    ),
    NOTE,
)

SPEC: TaskSpec[Captioner, CaptionedImages] = TaskSpec(
    name="captioning",
    noun="captioner",
    does="captions pictures",
    protocol=Captioner,
    config=CaptioningConfig,
    open=open_captioned,
    prepare=prepare_captioned,
    task=lambda model, train, dev, settings, vary: CaptioningTask(train, dev, model.read, settings, vary),
    evaluator=CaptionScores(),
    predictor=PictureCaptioner,
    verbs=("caption",),
    next_steps=("saccade eval {run} --num-beams 5", "saccade caption PHOTO --model {run} --attention why.png"),
    options=EvalOptions,
    claims={"world": WORLD, "flickr8k": FLICKR8K},
)
