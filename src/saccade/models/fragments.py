"""What SCAN and the papers that build on it share: a picture is its region vectors, a sentence its word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from saccade.batch import ImageCode, RegionBatch, TextBatch, TextCode
from saccade.language import Vocabulary
from saccade.models.matcher import Matcher
from saccade.nn import RegionEncoder, WordEncoder


@dataclass(frozen=True)
class FragmentConfig:
    """The encoders: SCAN's settings, which the later papers kept."""

    region_dim: int = 2048
    word_dim: int = 300
    dim: int = 1024  # the common space
    layers: int = 1  # of the GRU
    bidirectional: bool = True
    region_encoder: Literal["linear", "weight_norm"] = "linear"
    unit_regions: bool = True
    unit_words: bool = True
    dropout: float = 0.0  # of region features and word vectors in training; none in the papers
    budget_mb: int = 256  # bounds the memory of all-pairs scoring


class FragmentMatcher(Matcher):
    """Encodes regions by a linear map and words by a GRU; how the two are compared is each paper's own."""

    quick_bits: ClassVar[Mapping[str, torch.dtype]] = {"cuda": torch.bfloat16}

    def __init__(self, config: FragmentConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        weight_norm = config.region_encoder == "weight_norm"
        self.regions = RegionEncoder(config.region_dim, config.dim, weight_norm, config.unit_regions, config.dropout)
        self.words = WordEncoder(
            len(vocabulary),
            config.word_dim,
            config.dim,
            config.layers,
            config.bidirectional,
            config.unit_words,
            config.dropout,
        )

    def encode_images(self, images: RegionBatch) -> ImageCode:
        return ImageCode(self.regions(images), images.mask)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        return TextCode(self.words(texts), texts.mask)
