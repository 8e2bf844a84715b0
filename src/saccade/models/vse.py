"""VSE++: Improving Visual-Semantic Embeddings with Hard Negatives (Faghri, Fleet, Kiros, Fidler; BMVC 2018).

The baseline that fine-grained models must beat: one vector per picture (the mean of its regions), one per sentence
(the GRU's last state), compared by their cosine. What is mixed in the mean cannot be told apart afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.language import Vocabulary
from saccade.models.base.registry import register
from saccade.models.matcher import Matcher
from saccade.nn import (
    RegionEncoder,
    StatePool,
    WordEncoder,
    mean_state,
    nearest_regions,
    pooled_state,
    unit,
    whole_similarity,
)


@dataclass(frozen=True)
class VseConfig:
    region_dim: int = 2048
    word_dim: int = 300
    dim: int = 1024
    layers: int = 1
    bidirectional: bool = False
    text_pool: StatePool = "last"
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

    def __init__(self, config: VseConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
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
        return ImageCode(regions, images.mask, unit(mean_state(regions, images.mask.sum(dim=1))))

    def encode_texts(self, texts: TextBatch) -> TextCode:
        words = self.words(texts)
        return TextCode(words, texts.mask, unit(pooled_state(words, texts.lengths, self.config.text_pool)))

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return whole_similarity(images, texts)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        return nearest_regions(images, texts, self.config.sharpness)
