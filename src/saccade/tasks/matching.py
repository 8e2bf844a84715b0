"""Image–text matching: pull a picture and its captions together, rank everything else below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import ImageCode, PairBatch, TextCode, stack
from saccade.data.records import CaptionedImages
from saccade.language import Vocabulary
from saccade.metrics import recall
from saccade.models import Matcher
from saccade.nn import Negatives, triplet_loss


@dataclass(frozen=True)
class MatchingConfig:
    """The official settings: hardest negatives, margin 0.2, loss summed over the batch."""

    margin: float = 0.2
    negatives: Negatives = "hardest"
    gentle_steps: int = 0  # so many first steps learn from all negatives: the hardest alone can stall a fresh model
    siblings: bool = (
        True  # another caption of the same picture in a batch counts as a negative, as in the official code
    )
    min_count: int = 4  # words seen less often in training are unknown words
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # pictures or sentences encoded at once


class MatchingTask:
    """Pairs of a picture and one of its captions; every other caption in the batch is a negative."""

    selection = "rsum"

    def __init__(
        self, train: CaptionedImages, dev: CaptionedImages, vocabulary: Vocabulary, config: MatchingConfig
    ) -> None:
        self.train, self.dev, self.config = train, dev, config
        self.texts = vocabulary.batch(train.texts)  # word ids are small: all sentences at once

    def __len__(self) -> int:
        return len(self.train.texts)

    def batch(self, indices: Sequence[int]) -> PairBatch:
        images = self.train.image_of_text[list(indices)]
        texts = self.texts.select(indices)
        longest = int(texts.lengths.max())
        texts = type(texts)(texts.tokens[:, :longest], texts.mask[:, :longest], texts.words)
        return PairBatch(self.train.images.batch(images.tolist()), texts, torch.as_tensor(images))

    def loss(self, model: nn.Module, batch: PairBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        similarity = model(batch.images, batch.texts)
        negatives = "all" if step < self.config.gentle_steps else self.config.negatives
        same = None if self.config.siblings else batch.image_index[:, None] == batch.image_index[None, :]
        return triplet_loss(similarity, self.config.margin, negatives, same), {}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        assert isinstance(model, Matcher)
        return recall(similarity_table(model, self.dev, self.config.eval_batch), self.dev.image_of_text)


@torch.no_grad()
def encode_all_images(model: Matcher, data: CaptionedImages, batch_size: int = 256) -> ImageCode:
    """Every picture of a split, encoded; the codes stay on the model's device."""
    device = next(model.parameters()).device
    parts = [range(i, min(i + batch_size, len(data.images))) for i in range(0, len(data.images), batch_size)]
    return stack([model.encode_images(data.images.batch(list(part)).to(device)) for part in parts])


@torch.no_grad()
def encode_all_texts(model: Matcher, texts: Sequence[str], batch_size: int = 256) -> TextCode:
    device = next(model.parameters()).device
    parts = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    return stack([model.encode_texts(model.vocabulary.batch(part).to(device)) for part in parts])


@torch.no_grad()
def similarity_table(model: Matcher, data: CaptionedImages, batch_size: int = 256) -> Float[np.ndarray, "image text"]:
    """All pictures of a split against all its sentences."""
    was_training = model.training
    model.eval()
    try:
        images, texts = encode_all_images(model, data, batch_size), encode_all_texts(model, data.texts, batch_size)
        return model.similarity(images, texts).float().cpu().numpy()
    finally:
        model.train(was_training)
