"""What tasks share that learn from pictures and their captions: which of them a batch holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeVar

import torch

from saccade.batch import PairBatch, TextBatch
from saccade.data.records import CaptionedImages
from saccade.vision.augment import AugmentConfig


class PairConfig(Protocol):
    @property
    def items(self) -> Literal["pairs", "pictures"]:
        """What a batch counts: pairs, or pictures with all their captions."""
        ...


Config = TypeVar("Config", bound=PairConfig)


class PairTask(Generic[Config]):
    """Pictures and captions of theirs in one batch."""

    def __init__(
        self,
        train: CaptionedImages,
        dev: CaptionedImages,
        read: Callable[[Sequence[str]], TextBatch],
        config: Config,
        augmentation: AugmentConfig | None = None,
    ) -> None:
        self.train, self.dev, self.config, self.augmentation = train, dev, config, augmentation
        self.texts = read(train.texts)  # word ids are small: all sentences at once

    def __len__(self) -> int:
        return len(self.train.texts) if self.config.items == "pairs" else len(self.train.images)

    def batch(self, indices: Sequence[int]) -> PairBatch:
        texts, images, owner = self.train.pairs(indices, self.config.items)
        chosen = self.texts.select(texts).trimmed()
        return PairBatch(self.train.images.batch(images.tolist()), chosen, owner, torch.as_tensor(images))
