"""VSRN: Visual Semantic Reasoning for Image-Text Matching (Li, Zhang, Li, Li, Fu; ICCV 2019).

One vector per picture, but a considered one: regions first take from each other over a learned affinity, then a GRU
reads them into one memory of the scene; and from the same regions a caption must be written. Sentences and pictures
meet only as whole vectors, so an index can hold them. Equation numbers are the paper's; `docs/systems/vsrn.md` has
them in full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.registry import register
from saccade.models.matcher import Matcher
from saccade.nn import (
    Affinity,
    CaptionGenerator,
    MaskedBatchNorm,
    Measure,
    RegionEncoder,
    RelationBlock,
    SentenceGru,
    StatePool,
    WordEncoder,
    at_least_float32,
    last_state,
    mean_state,
    nearest_regions,
    pooled_state,
    unit,
    whole_similarity,
)

RegionNorm = Literal["channels", "regions", "none"]  # each channel over a picture's regions; each region; neither


@dataclass(frozen=True)
class VsrnConfig:
    """The official settings for COCO; for Flickr30k `norm_before="none"` and `final_norm=True`."""

    region_dim: int = 2048
    word_dim: int = 300
    dim: int = 2048  # the common space
    layers: int = 1  # of the sentences' GRU
    bidirectional: bool = False  # as the next, not in the paper: what serves the pooled baseline
    text_pool: StatePool = "last"  # of the GRU's states over a sentence
    norm_before: RegionNorm = "channels"  # of the regions, before the blocks
    blocks: int = 4  # of region reasoning; 0: none
    affinity: Affinity = "mean"  # R over k; softmax: rows of R are distributions
    norm_after: RegionNorm = "channels"
    global_reasoning: bool = True  # a GRU over the regions; off: their mean
    final_norm: bool = False  # batch normalisation of the picture's vector
    measure: Measure = "cosine"  # order: −‖[t − v]₊‖
    unit_images: bool = True
    use_abs: bool = False  # no number of a vector below zero, for the order measure
    caption_weight: float = 1.0  # of the caption loss; 0: no caption is written
    caption_dim: int = 512
    caption_word_dim: int = 300
    caption_length: int = 60  # longer captions are cut
    caption_bidirectional: bool = False  # the reading GRU of the caption generator
    caption_dropout: float = 0.2
    dropout: float = 0.0  # of region features and word vectors in training; none in the paper
    sharpness: float = 9.0  # of the word→region picture only; the score does not use it
    budget_mb: int = 256  # bounds the memory of the order measure

    def __post_init__(self) -> None:
        for name, least in (("blocks", 0), ("caption_weight", 0), ("caption_length", 3)):
            if not getattr(self, name) >= least:
                raise SaccadeError(f"{name} must be at least {least}, not {getattr(self, name)}")


@register(
    "vsrn", task="matching", title="Visual Semantic Reasoning for Image-Text Matching", venue="Li et al., ICCV 2019"
)
class Vsrn(Matcher):
    Config = VsrnConfig

    def __init__(self, config: VsrnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        size, dim, dropout = len(vocabulary), config.dim, config.dropout
        self.regions = RegionEncoder(config.region_dim, dim, normalise=False, dropout=dropout)  # eq. 1
        self.blocks = nn.ModuleList(RelationBlock(dim, config.affinity) for _ in range(config.blocks))  # eq. 2–3
        self.memory = SentenceGru(dim, dim) if config.global_reasoning else None  # eq. 4–7
        self.final_norm = MaskedBatchNorm(dim) if config.final_norm else None
        self.words = WordEncoder(
            size, config.word_dim, dim, config.layers, config.bidirectional, normalise=False, dropout=dropout
        )
        self.caption: CaptionGenerator | None = None
        if config.caption_weight:  # eq. 10
            sizes = (config.caption_dim, config.caption_word_dim)
            self.caption = CaptionGenerator(size, dim, *sizes, config.caption_dropout, config.caption_bidirectional)

    def encode_images(self, images: RegionBatch) -> ImageCode:
        regions = normalise(self.regions(images), self.config.norm_before)
        links = None
        for block in self.blocks:
            regions, links = block(regions, images.mask)
        regions = normalise(regions, self.config.norm_after)
        return ImageCode(regions, images.mask, self._whole_image(regions, images.mask), links=links)

    def _whole_image(
        self, regions: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"]
    ) -> Float[Tensor, "image dim"]:
        """The memory of all regions, in their stored order."""
        counts = mask.sum(dim=1)
        if self.memory is None:
            whole = mean_state(regions, counts)
        else:
            whole = at_least_float32(last_state(self.memory(regions, counts), counts))
        if self.final_norm is not None:
            whole = self.final_norm(whole[:, None], mask.any(dim=1)[:, None])[:, 0]
        whole = unit(whole) if self.config.unit_images else whole
        return whole.abs() if self.config.use_abs else whole

    def encode_texts(self, texts: TextBatch) -> TextCode:
        words = self.words(texts)
        whole = unit(pooled_state(words, texts.lengths, self.config.text_pool))
        return TextCode(words, texts.mask, whole.abs() if self.config.use_abs else whole)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return whole_similarity(images, texts, self.config.measure, self.config.budget_mb << 20)

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Eq. 8: L = L_M + L_G; ranking (eq. 9) is the task's, writing the caption from the regions (eq. 10) ours."""
        if self.caption is None:
            return {}
        loss = self.caption.loss(images.regions, images.mask, owner, texts, self.config.caption_length)
        return {"caption_loss": self.config.caption_weight * loss}

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Which regions lie near each word, how near each is to the whole picture (§ 4.5), and who took from whom."""
        assert images.pooled is not None
        nearest = nearest_regions(images, texts, self.config.sharpness, self.config.measure)
        share = torch.einsum("prd,pd->pr", unit(images.regions), unit(images.pooled))
        return replace(nearest, region_score=share, region_links=images.links)


def normalise(regions: Float[Tensor, "image region dim"], over: RegionNorm) -> Float[Tensor, "image region dim"]:
    """To length one: each channel over the regions of a picture, as the official code has it, or each region."""
    if over == "channels":
        return unit(regions.transpose(1, 2)).transpose(1, 2)
    return unit(regions) if over == "regions" else regions
