"""Self-critical training (Rennie et al.; CVPR 2017): say a caption at random, and learn from how it is judged.

What counts is the reward beyond a baseline: that of the model's likeliest caption (greedy), or of its other samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import UNKNOWN, Batch, PairBatch, PictureBatch, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages
from saccade.decoding import DecodingConfig, greedy, sample
from saccade.metrics.captions.reward import SelfCriticalReward
from saccade.models.base.captioner import Captioner

Baseline = Literal["greedy", "samples"]


@dataclass(frozen=True)
class RewardConfig:
    """When a model begins to learn from rewards, and what earns them."""

    after: int | None = None  # from this step on; 0: at once (give `start` a trained model); none: never
    cider: float = 1.0  # weight of CIDEr-D
    bleu: float = 0.0  # weight of BLEU-4
    baseline: Baseline = "greedy"  # or the mean of a picture's other samples
    num_samples: int = 1  # captions said of each picture

    def __post_init__(self) -> None:
        if self.after is not None and self.after < 0:
            raise SaccadeError(f"reward.after counts steps: it must be zero or more, not {self.after}")
        if self.num_samples < 1:
            raise SaccadeError(f"reward.num_samples must be at least 1, not {self.num_samples}")
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
        self.decoding = DecodingConfig(max_length=longest + 1, num_return_sequences=config.num_samples)

    @torch.no_grad()
    def say(self, model: Captioner, batch: PairBatch) -> SpokenBatch:
        """Captions drawn from what the model would say when it is used (dropout is for learning), and their worth."""
        samples, owners = self.config.num_samples, batch.image_index.tolist()
        training = model.training
        model.eval()
        state = model.start(model.extract(batch.images))
        said = sample(model, state, self.decoding)
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
        chances = sayable(forced.log_probabilities).gather(2, labels[:, :, None])[:, :, 0].masked_fill(~said, 0)
        return policy_loss(chances, batch.advantage, said), {"reward": batch.reward, "baseline": batch.baseline}

    def _rewards(self, words: Int[Tensor, "row step"], owners: list[int]) -> Float[Tensor, " row"]:
        return torch.as_tensor(self.reward(words, owners), dtype=torch.float32, device=words.device)


def sayable(log_probabilities: Float[Tensor, "row step word"]) -> Float[Tensor, "row step word"]:
    """Those of words that are drawn: <unk> never is."""
    words = torch.arange(log_probabilities.shape[2], device=log_probabilities.device)
    return log_probabilities.masked_fill(words == UNKNOWN, float("-inf")).log_softmax(dim=2)


def mean_of_others(reward: Float[Tensor, " row"], samples: int) -> Float[Tensor, " row"]:
    """For each of a picture's samples, which stand one after the other, the mean reward of the others."""
    by_image = reward.view(-1, samples)
    return ((by_image.sum(dim=1, keepdim=True) - by_image) / (samples - 1)).flatten()


def policy_loss(
    log_probabilities: Float[Tensor, "row step"], advantage: Float[Tensor, " row"], said: Bool[Tensor, "row step"]
) -> Float[Tensor, ""]:
    """−Σ log p · advantage over the words that were said, <end> among them, divided by their number."""
    return -(log_probabilities * advantage[:, None] * said).sum() / said.sum()
