"""Matchers: pictures and sentences are encoded apart and compared; the comparison can be looked into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Alignment, ImageCode, PictureBatch, RegionBatch, TextBatch, TextCode
from saccade.models.base.model import Model

ALIKE = 8  # sentences whose lengths fall into the same so many words are scored together


class Matcher(Model):
    """Encoding apart from scoring is what makes indexing and two-stage search possible."""

    quick_bits: ClassVar[Mapping[str, torch.dtype]] = {}
    """By kind of device: in what its table of all pairs comes much sooner and nearly right. 16-bit floats stand for
    autocast, `torch.int8` for `nn.byte_products`."""
    pair_memory: ClassVar[int] = 13
    """What `align` holds for a pair with its codes, in times of these: at most, and that is CAMP's."""

    @abstractmethod
    def encode_images(self, images: RegionBatch) -> ImageCode: ...

    @abstractmethod
    def encode_texts(self, texts: TextBatch) -> TextCode: ...

    @abstractmethod
    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Every picture with every sentence."""

    @abstractmethod
    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Picture p with sentence p: the weight of every word–region pair."""

    def pair_scores(
        self, images: ImageCode, texts: TextCode, image: Int[Tensor, " pair"], text: Int[Tensor, " pair"]
    ) -> Float[Tensor, " pair"]:
        """Picture `image[p]` with sentence `text[p]`, as `similarity` has them to rounding, within `budget_mb`.

        How far a sentence is padded depends on its length alone, so that the same sentence always scores the same.
        """
        budget = getattr(self.config, "budget_mb", 256) << 20
        buckets = (texts.mask.sum(dim=1)[text] + ALIKE - 1) // ALIKE
        buckets, order = buckets.sort(stable=True)
        found = image.new_empty(len(image), dtype=images.regions.dtype)
        kinds, counts = torch.unique_consecutive(buckets, return_counts=True)
        for bucket, places in zip(kinds.tolist(), torch.split(order, counts.tolist()), strict=True):
            longest = min(bucket * ALIKE, texts.mask.shape[1])
            size = self.pair_memory * (_bytes_of_one(images) + _bytes_of_one(texts.select(slice(1)).trimmed(longest)))
            for some in torch.split(places, max(1, budget // size)):
                pairs = images.select(image[some]), texts.select(text[some]).trimmed(longest)
                found[some] = self.align(*pairs).score
        return found

    def never_waits(self, images: RegionBatch, texts: TextBatch) -> bool:
        """Whether all of a training step with such a batch is a matter of the GPU alone: then it can be recorded."""
        return False

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """What the paper asks of the model beside ranking, by name; text t describes picture `owner[t]`."""
        return {}

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> Float[Tensor, "image text"]:
        return self.similarity(self.encode_images(self.extract(images)), self.encode_texts(texts))


def _bytes_of_one(code: ImageCode | TextCode) -> int:
    parts = [getattr(code, field.name) for field in fields(code)]
    return sum(part[:1].nbytes for part in parts if part is not None)
