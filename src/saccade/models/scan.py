"""SCAN: Stacked Cross Attention for Image-Text Matching (Lee, Chen, Hua, Hu, He; ECCV 2018).

Each word looks for its regions (or each region for its words), what it finds is compared with what it is, and the
comparisons are pooled into one similarity. Equation numbers are the paper's; `docs/systems/scan.md` has them in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.language import Vocabulary
from saccade.models.matcher import Matcher
from saccade.models.registry import register
from saccade.nn import Attend, RegionEncoder, WordEncoder
from saccade.ops import AttentionForm, Choice, Normaliser, Pool


@dataclass(frozen=True)
class ScanConfig:
    """The paper's settings for Flickr30k, text→image, LogSumExp."""

    region_dim: int = 2048
    word_dim: int = 300
    dim: int = 1024  # the common space
    layers: int = 1  # of the GRU
    bidirectional: bool = True
    region_encoder: Literal["linear", "weight_norm"] = "linear"
    unit_regions: bool = True
    unit_words: bool = True
    dropout: float = 0.0  # of region features and word vectors in training; none in the paper
    queries: Literal["words", "regions"] = "words"  # words: text→image, regions: image→text
    attention: Choice = "attend"  # max, with pool=sum: the Sum-Max baselines, eq. 9–10
    normaliser: Normaliser = "clipped_l2"
    slope: float = 0.1  # of negative scores when clipped: 0.1 in the official code, 0 in the paper
    sharpness: float = 9.0  # λ₁: how hard a query chooses
    pool: Pool = "logsumexp"
    pool_sharpness: float = 6.0  # λ₂
    budget_mb: int = 256  # bounds the memory of all-pairs scoring


@register(
    "scan", task="matching", title="Stacked Cross Attention for Image-Text Matching", venue="Lee et al., ECCV 2018"
)
class Scan(Matcher):
    Config = ScanConfig

    def __init__(self, config: ScanConfig, vocabulary: Vocabulary, eye: str | None = None) -> None:
        super().__init__(config, vocabulary, eye)
        weight_norm = config.region_encoder == "weight_norm"
        self.regions = RegionEncoder(
            config.region_dim, config.dim, weight_norm, config.unit_regions, config.dropout
        )  # eq. 13
        self.words = WordEncoder(
            len(vocabulary),
            config.word_dim,
            config.dim,
            config.layers,
            config.bidirectional,
            config.unit_words,
            config.dropout,
        )  # eq. 14–16
        form = AttentionForm(
            config.normaliser, config.sharpness, config.slope, config.attention, config.pool, config.pool_sharpness
        )
        self.attend = Attend(config.queries, form, config.budget_mb << 20)  # eq. 1–8

    def encode_images(self, images: RegionBatch) -> ImageCode:
        return ImageCode(self.regions(images), images.mask)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        return TextCode(self.words(texts), texts.mask)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return self.attend.similarity(images, texts)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        return self.attend.align(images, texts)
