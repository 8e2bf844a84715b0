"""Captioning: say what people said of a picture, word by word; then say what a metric likes.

The latter is self-critical training (Rennie et al.; CVPR 2017): say a caption at random, and learn from how it is
judged. What counts is the reward beyond a baseline: that of the model's likeliest caption (greedy), or of its other
samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import (
    UNKNOWN,
    Batch,
    CaptionState,
    PairBatch,
    PictureBatch,
    RegionBatch,
    StepOutput,
    TeacherForced,
    TextBatch,
)
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages
from saccade.decoding import DecodingConfig, beam_search, greedy, sample
from saccade.language import words_only
from saccade.metrics.captions.reward import SelfCriticalReward
from saccade.models.base.captioner import NEVER_SAID, Captioner, never_said
from saccade.ops import current_autocast
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.captioning import EvalOptions
from saccade.tasks.captioning.evaluate import CaptionScores, as_read_by, caption_figures
from saccade.tasks.captioning.predict import PictureCaptioner
from saccade.tasks.pairs import PairTask, cut, open_captioned, prepare_captioned, vary_images
from saccade.tasks.prepare import Prepared

Baseline = Literal["greedy", "samples"]


@dataclass(frozen=True)
class RewardConfig:
    """When a model begins to learn from rewards, and what earns them."""

    after: int | None = None  # from this step on; 0: at once (give `start` a trained model); none: never
    cider: float = 1.0  # weight of CIDEr-D
    bleu: float = 0.0  # weight of BLEU-4
    baseline: Baseline = "greedy"  # or the mean of a picture's other samples
    num_samples: int = 1  # captions said of each picture
    sampling: Literal["draw", "beam"] = "draw"  # words are drawn; or captions are those of a beam, as in Up-Down
    temperature: float = 1.0  # of what words are drawn from; less: captions nearer to those of greedy decoding

    def __post_init__(self) -> None:
        if self.after is not None and self.after < 0:
            raise SaccadeError(f"reward.after counts steps: it must be zero or more, not {self.after}")
        if self.num_samples < 1:
            raise SaccadeError(f"reward.num_samples must be at least 1, not {self.num_samples}")
        check_ranges(self, "temperature", "more than zero")
        if self.baseline == "samples" and self.num_samples < 2:
            raise SaccadeError(
                "reward.baseline=samples compares the samples of a picture: give reward.num_samples=5 or so"
            )
        if self.after is not None and not (self.cider or self.bleu):
            raise SaccadeError("a reward needs reward.cider or reward.bleu to be other than 0")

    def begun(self, step: int) -> bool:
        return self.after is not None and step >= self.after


@dataclass(frozen=True)
class SpokenBatch(Batch):
    """What a model said of pictures: caption t was said of picture `owner[t]`, and judged."""

    images: RegionBatch | PictureBatch
    texts: TextBatch
    owner: Int[Tensor, " text"]
    advantage: Float[Tensor, " text"]  # reward beyond the baseline
    reward: Float[Tensor, ""]  # in the mean
    baseline: Float[Tensor, ""]


class SelfCritical:
    """The reward of captions of a training split, and the loss that raises it."""

    def __init__(self, train: CaptionedImages, texts: TextBatch, config: RewardConfig, longest: int) -> None:
        tokens = texts.tokens.tolist()
        references = [[tokens[text] for text in owned] for owned in train.texts_of_image]
        self.config = config
        self.reward = SelfCriticalReward(references, cider_weight=config.cider, bleu_weight=config.bleu)
        # <end> counts as a word; <unk>, which references hold, would earn something and is never said of a picture
        self.decoding = DecodingConfig(
            max_length=longest + 1,
            num_return_sequences=config.num_samples,
            num_beams=config.num_samples,
            temperature=config.temperature,
        )

    @torch.no_grad()
    def say(self, model: Captioner, batch: PairBatch) -> SpokenBatch:
        """Captions drawn from what the model would say when it is used (dropout is for learning), and their worth."""
        samples, owners = self.config.num_samples, batch.image_index.tolist()
        training = model.training
        model.eval()
        state = model.start(model.extract(batch.images))
        say = sample if self.config.sampling == "draw" else beam_search
        said = say(model, state, self.decoding)
        reward = self._rewards(said.words, [owner for owner in owners for _ in range(samples)])
        if self.config.baseline == "greedy":
            likeliest = greedy(model, state, self.decoding)
            baseline = self._rewards(likeliest.words, owners).repeat_interleave(samples)
        else:
            baseline = mean_of_others(reward, samples)
        model.train(training)
        owner = torch.arange(len(owners), device=reward.device).repeat_interleave(samples)
        means = reward.mean(), baseline.mean()
        return SpokenBatch(batch.images, said.sentences(), owner, reward - baseline, *means)

    def loss(
        self, model: Captioner, images: RegionBatch, batch: SpokenBatch
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """−Σ log p(sample) · (its reward − the baseline) a word, and the mean rewards."""
        forced = model.teacher_force(model.start(images).select(batch.owner), batch.texts.tokens[:, :-1])
        labels, said = batch.texts.tokens[:, 1:], batch.texts.mask[:, 1:]
        words = torch.arange(forced.log_probabilities.shape[2], device=labels.device)  # <unk> is never drawn
        allowed = forced.log_probabilities.masked_fill(words == UNKNOWN, float("-inf")) / self.config.temperature
        drawn = allowed.log_softmax(dim=2)
        chances = drawn.gather(2, labels[:, :, None])[:, :, 0].masked_fill(~said, 0)
        return policy_loss(chances, batch.advantage, said), {"reward": batch.reward, "baseline": batch.baseline}

    def _rewards(self, words: Int[Tensor, "row step"], owners: list[int]) -> Float[Tensor, " row"]:
        return torch.as_tensor(self.reward(words, owners), dtype=torch.float32, device=words.device)


def mean_of_others(reward: Float[Tensor, " row"], samples: int) -> Float[Tensor, " row"]:
    """For each of a picture's samples, which stand one after the other, the mean reward of the others."""
    by_image = reward.view(-1, samples)
    return ((by_image.sum(dim=1, keepdim=True) - by_image) / (samples - 1)).flatten()


def policy_loss(
    log_probabilities: Float[Tensor, "row step"], advantage: Float[Tensor, " row"], said: Bool[Tensor, "row step"]
) -> Float[Tensor, ""]:
    """−Σ log p · advantage over the words that were said, <end> among them, divided by their number."""
    return -(log_probabilities * advantage[:, None] * said).sum() / said.sum()


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
        check_ranges(self, "label_smoothing", "at least 0 and less than 1")
        if not 0 <= self.scheduled_sampling <= 1:
            raise SaccadeError(f"scheduled_sampling is a chance between 0 and 1, not {self.scheduled_sampling}")
        check_ranges(self, "scheduled_sampling_every eval_batch", "at least 1")

    def scheduled_sampling_chance(self, step: int) -> float:
        """How often a word is the model's own at this step of the run."""
        if not self.scheduled_sampling or step < self.scheduled_sampling_start:
            return 0.0
        return min(
            self.scheduled_sampling,
            0.05 * (1 + (step - self.scheduled_sampling_start) // self.scheduled_sampling_every),
        )


class CaptioningTask(PairTask):
    """Pictures and captions of theirs in one batch; the model says each caption of its own picture."""

    selection = "cider_d"
    config: CaptioningConfig

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


def prepare_words_only(train: CaptionedImages, settings: Any) -> Prepared:
    """As other tasks with captions do, of what captioners read of them."""
    return prepare_captioned(replace(train, texts=tuple(map(words_only, train.texts))), settings)


SPEC: TaskSpec[Captioner, CaptionedImages] = TaskSpec(
    name="captioning",
    noun="captioner",
    does="captions pictures",
    protocol=Captioner,
    config=CaptioningConfig,
    open=open_captioned,
    prepare=prepare_words_only,
    task=lambda model, train, dev, settings, vary: CaptioningTask(
        as_read_by(model, train), as_read_by(model, dev), model.read, settings, vary
    ),
    evaluator=CaptionScores(),
    predictor=PictureCaptioner,
    verbs=("caption",),
    next_steps=("saccade eval {run}{split} --num-beams 5", "saccade caption PHOTO --model {run} --attention why.png"),
    options=EvalOptions,
)
