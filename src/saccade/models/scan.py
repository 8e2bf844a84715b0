"""SCAN: Stacked Cross Attention for Image-Text Matching (Lee, Chen, Hua, Hu, He; ECCV 2018).

Each word looks for its regions (or each region for its words), what it finds is compared with what it is, and the
comparisons are pooled into one similarity. Equation numbers are the paper's; `docs/systems/scan.md` has them in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.language import Vocabulary
from saccade.models.base.registry import register
from saccade.models.fragments import FragmentConfig, FragmentMatcher
from saccade.nn import Attend
from saccade.ops import AttentionForm, Choice, Normaliser, Pool


@dataclass(frozen=True)
class ScanConfig(FragmentConfig):
    """The paper's settings for Flickr30k, text→image, LogSumExp."""

    queries: Literal["words", "regions"] = "words"  # words: text→image, regions: image→text
    attention: Choice = "attend"  # max, with pool=sum: the Sum-Max baselines, eq. 9–10
    normaliser: Normaliser = "clipped_l2"
    slope: float = 0.1  # of negative scores when clipped: 0.1 in the official code, 0 in the paper
    sharpness: float = 9.0  # λ₁: how hard a query chooses
    pool: Pool = "logsumexp"
    pool_sharpness: float = 6.0  # λ₂


@register(
    "scan", task="matching", title="Stacked Cross Attention for Image-Text Matching", venue="Lee et al., ECCV 2018"
)
class Scan(FragmentMatcher):
    Config = ScanConfig
    quick_bits: ClassVar[Mapping[str, torch.dtype]] = {"cuda": torch.float16}  # codes of unit length: 3 bits more
    pair_memory = 3

    def __init__(self, config: ScanConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # the encoders, eq. 13–16
        form = AttentionForm(
            config.normaliser, config.sharpness, config.slope, config.attention, config.pool, config.pool_sharpness
        )
        self.attend = Attend(config.queries, form, config.budget_mb << 20)  # eq. 1–8

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return self.attend.similarity(images, texts)

    def never_waits(self, images: RegionBatch, texts: TextBatch) -> bool:
        return self.attend.never_waits(images.mask, texts.mask)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        return self.attend.align(images, texts)
