"""VSE++: Improving Visual-Semantic Embeddings with Hard Negatives (Faghri, Fleet, Kiros, Fidler; BMVC 2018).

The baseline that fine-grained models must beat: one vector per picture (the mean of its regions), one per sentence
(the GRU's last state), compared by their cosine. What is mixed in the mean cannot be told apart afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.language import Vocabulary
from saccade.models.matcher import Matcher
from saccade.models.registry import register
from saccade.nn import RegionEncoder, WordEncoder, unit


@dataclass(frozen=True)
class VseConfig:
    region_dim: int = 2048
    word_dim: int = 300
    dim: int = 1024
    layers: int = 1
    bidirectional: bool = False
    text_pool: Literal["last", "mean"] = "last"
    dropout: float = 0.0  # of region features and word vectors in training
    sharpness: float = 9.0  # of the word→region picture only; the score does not use it


@register(
    "vse",
    task="matching",
    title="VSE++: Improving Visual-Semantic Embeddings with Hard Negatives",
    venue="Faghri et al., BMVC 2018",
)
class Vse(Matcher):
    Config = VseConfig

    def __init__(self, config: VseConfig, vocabulary: Vocabulary, eye: str | None = None) -> None:
        super().__init__(config, vocabulary, eye)
        self.regions = RegionEncoder(config.region_dim, config.dim, normalise=False, dropout=config.dropout)
        self.words = WordEncoder(
            len(vocabulary),
            config.word_dim,
            config.dim,
            config.layers,
            config.bidirectional,
            normalise=False,
            dropout=config.dropout,
        )

    def encode_images(self, images: RegionBatch) -> ImageCode:
        regions = self.regions(images)
        mean = regions.sum(dim=1) / images.mask.sum(dim=1, keepdim=True).clamp(min=1)
        return ImageCode(regions, images.mask, unit(mean))

    def encode_texts(self, texts: TextBatch) -> TextCode:
        words = self.words(texts)
        if self.config.text_pool == "last":
            last = (texts.lengths - 1)[:, None, None].expand(-1, 1, words.shape[2])
            return TextCode(words, texts.mask, unit(words.gather(1, last)[:, 0]))
        return TextCode(words, texts.mask, unit(words.sum(dim=1) / texts.lengths[:, None]))

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        assert images.pooled is not None
        assert texts.pooled is not None
        with torch.autocast(images.pooled.device.type, enabled=False):  # near pictures differ by less than bfloat16 can
            return images.pooled @ texts.pooled.T

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """A pooled model aligns nothing itself; this shows which regions lie nearest to each word's state."""
        assert images.pooled is not None
        assert texts.pooled is not None
        cosine = torch.bmm(unit(texts.words), unit(images.regions).transpose(1, 2))  # [pair, word, region]
        sharp = (self.config.sharpness * cosine).masked_fill(~images.mask[:, None], torch.finfo(cosine.dtype).min)
        score = (images.pooled * texts.pooled).sum(dim=-1)
        return Alignment(sharp.softmax(dim=-1), score, texts.mask, images.mask, word_score=cosine.amax(dim=-1))
