"""What tasks share that learn from pictures and their captions: the split, the words, and what a batch holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from saccade.batch import END, PairBatch, PictureBatch, RegionBatch, TextBatch
from saccade.data import CaptionedImages, DataConfig
from saccade.features import open_in_memory, open_split
from saccade.models import Model
from saccade.tasks.prepare import Prepared, prepare_words
from saccade.vision.augment import AugmentConfig, augment

Read = Callable[[Sequence[str]], TextBatch]


def open_captioned(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> CaptionedImages:
    """Pictures with captions: as regions, or as pixels for a model with a backbone of its own."""
    if config.in_memory and pixels is None:
        return open_in_memory(config, split, device)
    return open_split(config, split, pixels)


def prepare_captioned(train: CaptionedImages, settings: Any) -> Prepared:
    """The captions' words, and the width of the regions if the pictures come as such."""
    words = prepare_words(train.texts, settings.min_count, settings.vectors)
    widths = {"region_dim": train.regions.dim} if hasattr(train.images, "dim") else {}
    return replace(words, widths=widths, extractor=train.extractor)


class PairTask:
    """Pictures and captions of theirs in one batch; `config.items` says whether it counts pairs or pictures."""

    def __init__(
        self,
        train: CaptionedImages,
        dev: CaptionedImages,
        read: Read,
        config: Any,
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


def vary_images(
    model: Model, images: RegionBatch | PictureBatch, augmentation: AugmentConfig | None
) -> RegionBatch | PictureBatch:
    """Pixels cropped, mirrored and tinted on the way into a model with a backbone of its own; regions as they are."""
    if augmentation is None or not isinstance(images, PictureBatch):
        return images
    assert model.backbone is not None
    return replace(images, pixels=augment(images.pixels, model.backbone.size, augmentation))


def about_each(images: RegionBatch, owner: Int[Tensor, " text"]) -> RegionBatch:
    """The picture that each text is about. Not by `select`: ids would be read from the device."""
    return RegionBatch(images.features[owner], images.mask[owner], images.boxes[owner])


def cut(texts: TextBatch, longest: int) -> TextBatch:
    """Captions of at most `longest` words; <end> comes after the last that is left."""
    size = longest + 2  # with <start> and <end>
    if texts.tokens.shape[1] <= size:
        return texts
    tokens = texts.tokens[:, :size].clone()
    tokens[texts.lengths > size, -1] = END
    words = tuple(
        (*sentence[: size - 1], sentence[-1]) if len(sentence) > size else sentence for sentence in texts.words
    )
    return replace(texts, tokens=tokens, mask=texts.mask[:, :size], words=words)
