"""SCAN: Stacked Cross Attention for Image-Text Matching (Lee, Chen, Hua, Hu, He; ECCV 2018).

Every word attends to the regions (or every region to the words), is compared with the vector it attended to, and the
comparisons are pooled into one similarity. For words e_j as queries and regions v_i as context:

    s_ij  = cos(v_i, e_j),   s̄_ij = [s_ij]₊ / √(Σ_j [s_ij]₊²)                             (1)
    a_j   = Σ_i α_ij v_i,    α_ij = exp(λ₁ s̄_ij) / Σ_i exp(λ₁ s̄_ij)                       (2–3)
    R_j   = e_j · a_j / (|e_j| |a_j|)                                                     (4)
    S     = log(Σ_j exp(λ₂ R_j)) / λ₂,   or their mean                                    (5–8)
    S     = Σ_j max_i s_ij                                          the Sum-Max baselines (9–10)

The vectors a_j are never computed: e_j · a_j = Σ_i α_ij s_ij, and |a_j|² = α_jᵀ G α_j with G = V Vᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models.base.matcher import FragmentConfig, FragmentMatcher
from saccade.models.base.model import register
from saccade.nn.attention import attended_cosine, products
from saccade.ops import (
    ATTENDED_SIMILARITY,
    AttentionForm,
    Choice,
    Normaliser,
    Pool,
    attended_similarity,
    attention_weights,
    pool,
)
from saccade.ops.form import roles


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
    operator = ATTENDED_SIMILARITY

    def __init__(self, config: ScanConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # the encoders, eq. 13–16
        self.form = AttentionForm(
            config.normaliser, config.sharpness, config.slope, config.attention, config.pool, config.pool_sharpness
        )

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Eq. 1–8 of every pair."""
        sides = roles(images, texts, self.config.queries == "words")
        table = attended_similarity(*sides, self.form, self.budget)  # [query item, context item]
        return table.T if self.config.queries == "words" else table

    def pair(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        queries, context = roles(images, texts, self.config.queries == "words")
        every, each = (queries.vectors[None], queries.mask[None]), (context.vectors[:, None], context.mask[:, None])
        table = self._attend(*every, *each)[2]  # [context item, query item]
        return table if self.config.queries == "words" else table.T

    def alignment(self, images: ImageCode, texts: TextCode) -> Alignment:
        queries, context = roles(images, texts, self.config.queries == "words")
        weights, match, score = self._attend(queries.vectors, queries.mask, context.vectors, context.mask)
        if self.config.queries == "words":
            return Alignment(weights, score, texts.mask, images.mask, word_score=match)
        return Alignment(weights.mT, score, texts.mask, images.mask, region_score=match)

    def _attend(
        self,
        queries: Float[Tensor, "*pair query dim"],
        query_mask: Bool[Tensor, "*pair query"],
        context: Float[Tensor, "*pair part dim"],
        context_mask: Bool[Tensor, "*pair part"],
    ) -> tuple[Float[Tensor, "*pair query part"], Float[Tensor, "*pair query"], Float[Tensor, "*pair"]]:
        """The weights α, the cosines R and the similarity S; axes of `pair` are broadcast."""
        queries, context = queries * query_mask[..., None], context * context_mask[..., None]
        scores = products(queries, context)  # eq. 1
        if self.config.attention == "max":  # eq. 9–10
            best = scores.masked_fill(~context_mask[..., None, :], -torch.inf).max(dim=-1)
            weights = torch.zeros_like(scores).scatter(-1, best.indices[..., None], 1.0) * context_mask[..., None, :]
            match = best.values.where(context_mask.any(dim=-1, keepdim=True), 0.0)
        else:
            weights = attention_weights(scores.mT, query_mask, context_mask, self.form).mT  # eq. 1–3
            length = torch.linalg.vector_norm(queries, dim=-1)
            match = attended_cosine(weights, scores, length, products(context, context))  # eq. 4
        score = pool(match, query_mask, self.config.pool, self.config.pool_sharpness)  # eq. 5–8
        return weights * query_mask[..., None], match * query_mask, score
