"""IMRAM: Iterative Matching with Recurrent Attention Memory for Cross-Modal Image-Text Retrieval (Chen, Ding, Liu,
Lin, Liu, Han; CVPR 2020).

SCAN attends once. Here every word attends to the regions, updates itself with what it attended to and attends again,
K times; so do the regions, attending to words. At each step the attended vector is compared with the *original* query,
and all K comparisons count. For queries q and a context c, at step k:

    z_ij  = cos(c_i, q_j),   z̄_ij = [z_ij]₊ / √(Σ_j [z_ij]₊²)                                            (1)
    a_j   = Σ_i α_ij c_i,    α_ij = exp(λ z̄_ij) / Σ_i exp(λ z̄_ij)       cross-modal attention unit        (2)
    g_j   = σ(W_g [q_j ; a_j] + b_g)                                    memory distillation unit          (3)
    u_j   = tanh(W_u [q_j ; a_j] + b_u)                                                                   (4)
    q_j   ← g_j q_j + (1 − g_j) u_j                                                                       (5)
    F_k   = mean over j of cos(q_j⁰, a_jᵏ)                                                                (6)
    S     = Σ_k F_k(words, regions) + Σ_k F_k(regions, words)                                             (7)

The vectors a_j are never computed. As in SCAN, the cosine is that of Σ_i α_ij c_i · q_j⁰ and of the context's Gram
matrix; and since W [q ; a] = W_q q + Σ_i α_ij (W_a c_i), W_a is applied once to every context vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.matcher import FragmentConfig, FragmentMatcher, Fragments
from saccade.models.base.model import register
from saccade.nn.attention import attended_cosine, products
from saccade.nn.encode import unit
from saccade.ops import AttentionForm, Normaliser, attention_weights, pool
from saccade.ops.recurrent_attention import RECURRENT_ATTENTION

MemoryForm = Literal["gate", "mlp", "add", "none"]


@dataclass(frozen=True)
class ImramConfig(FragmentConfig):
    """The paper's full model for Flickr30k."""

    queries: Literal["words", "regions", "both"] = "both"  # text-IMRAM, image-IMRAM, the full model
    steps: int = 3  # K: how often a query attends
    memory: MemoryForm = "gate"  # mlp, add: without the gate; none: queries stay as they are, and all steps are alike
    unit_memory: bool = False  # scale updated queries to length one; the official scripts do not
    normaliser: Normaliser = "clipped_l2"
    slope: float = 0.1  # of negative scores when clipped
    sharpness: float = 9.0  # λ: how hard a query chooses
    pool: Literal["mean", "sum"] = "mean"  # over the queries

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise SaccadeError(f"model.steps must be at least 1, not {self.steps}")


@register(
    "imram",
    task="matching",
    title="IMRAM: Iterative Matching with Recurrent Attention Memory for Cross-Modal Image-Text Retrieval",
    venue="Chen et al., CVPR 2020",
)
class Imram(FragmentMatcher):
    Config = ImramConfig
    operator = RECURRENT_ATTENTION

    def __init__(self, config: ImramConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # the encoders, as SCAN's
        self.words_ask = RecurrentAttention("words", config) if config.queries != "regions" else None
        self.regions_ask = RecurrentAttention("regions", config) if config.queries != "words" else None

    @property
    def sides(self) -> list[RecurrentAttention]:
        """Words that attend to regions, regions that attend to words, or both."""
        return [side for side in (self.words_ask, self.regions_ask) if side is not None]

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[MemoryFragments, MemoryFragments]:
        regions, words = images.regions * images.mask[..., None], texts.words * texts.mask[..., None]
        return (
            MemoryFragments.of(regions, images.mask, self.regions_ask, self.words_ask),
            MemoryFragments.of(words, texts.mask, self.words_ask, self.regions_ask),
        )

    def pair(self, images: MemoryFragments, texts: MemoryFragments) -> Float[Tensor, "image text"]:
        return torch.stack([side(images, texts).sum(dim=0) for side in self.sides]).sum(dim=0)  # (7)

    def alignment(self, images: MemoryFragments, texts: MemoryFragments) -> Alignment:
        """Every step of the words (of the regions, where they alone attend)."""
        sides = [side.alignment(images, texts) for side in self.sides]
        if len(sides) == 1:
            return sides[0]
        words, regions = sides
        return replace(words, score=words.score + regions.score, region_score=regions.region_score)


@dataclass(frozen=True)
class MemoryFragments(Fragments):
    """One side, zero where padded, with what its fragments add to an update of the memory."""

    recalled: Float[Tensor, "item part more"] | None = None  # W_q q, where these attend
    offered: Float[Tensor, "item part more"] | None = None  # W_a c + b, where these are attended to

    @classmethod
    def of(
        cls, vectors: Tensor, mask: Tensor, own: RecurrentAttention | None, other: RecurrentAttention | None
    ) -> MemoryFragments:
        """Of fragments whose own side attends to the other side, and which the other side attends to."""
        recalled = None if own is None else own.memory.recall(vectors)
        return cls(vectors, mask, recalled, None if other is None else other.memory.offer(vectors))


class RecurrentAttention(nn.Module):
    """The paper's RAM block, K times: attend, compare, update. Words attend to regions, or regions to words."""

    def __init__(self, queries: Literal["words", "regions"], config: ImramConfig) -> None:
        super().__init__()
        self.words_attend, self.steps = queries == "words", config.steps
        self.form = AttentionForm(config.normaliser, config.sharpness, config.slope, pool=config.pool)
        memory = config.memory if config.steps > 1 else "none"
        self.memory = MemoryDistillation(config.dim, memory, config.unit_memory)

    def forward(self, images: MemoryFragments, texts: MemoryFragments) -> Float[Tensor, "step image text"]:
        """F_k of every step k."""
        queries, context = (texts, images) if self.words_attend else (images, texts)
        steps = [pool(match, queries.mask[None], self.form.pool) for _, match in self.attend(queries, context)]
        return torch.stack(steps) if self.words_attend else torch.stack(steps).mT

    def alignment(self, images: MemoryFragments, texts: MemoryFragments) -> Alignment:
        queries, context = (texts, images) if self.words_attend else (images, texts)
        weights, match = zip(*self.attend(queries, context, every_pair=False), strict=True)
        steps, cosines = torch.cat(weights, dim=1), torch.cat(match, dim=1).mean(dim=1) * queries.mask
        score = self.steps * pool(cosines, queries.mask, self.form.pool)
        if self.words_attend:
            return Alignment(steps[:, -1], score, texts.mask, images.mask, word_score=cosines, steps=steps)
        steps = steps.mT
        return Alignment(steps[:, -1], score, texts.mask, images.mask, region_score=cosines, steps=steps)

    def attend(
        self, queries: MemoryFragments, context: MemoryFragments, every_pair: bool = True
    ) -> Iterator[tuple[Float[Tensor, "other item query part"], Float[Tensor, "other item query"]]]:
        """The weights α and cosines of each step: every item with every other, or (`every_pair` off) p with p."""
        assert queries.recalled is not None
        assert context.offered is not None
        mask = queries.mask[None] if every_pair else queries.mask[:, None]
        pairs = (1, -1) if every_pair else queries.mask.shape  # the queries of all items in one row, or each alone
        query, recalled = (part.reshape(*pairs, part.shape[-1]) for part in (queries.vectors, queries.recalled))
        length = torch.linalg.vector_norm(query, dim=-1).view(mask.shape)
        gram = products(context.vectors, context.vectors)[:, None]
        original = None
        for step in range(self.steps):
            scores = (query @ context.vectors.mT).view(len(context), *mask.shape[1:], -1)  # (1)
            weights = attention_weights(scores.mT, mask, context.mask[:, None], self.form).mT  # (1–2)
            original = scores if original is None else original  # q⁰ · c
            yield weights, attended_cosine(weights, original, length, gram)  # (6)
            if step + 1 < self.steps:  # no step follows that would use the last update
                query = self.memory(query, weights.flatten(1, 2), context.offered, None if step else recalled)


class MemoryDistillation(nn.Module):
    """`gate`: (3–5), `mlp`: q ← u, `add`: q ← q + a, `none`: q ← q; `unit_length` scales q to length one."""

    def __init__(self, dim: int, form: MemoryForm = "gate", unit_length: bool = False) -> None:
        super().__init__()
        self.dim, self.form, self.unit_length = dim, form, unit_length
        self.gate = nn.Linear(2 * dim, dim) if form == "gate" else None
        self.candidate = nn.Linear(2 * dim, dim) if form in ("gate", "mlp") else None

    def recall(self, query: Float[Tensor, "*item query dim"]) -> Float[Tensor, "*item query more"]:
        """W_q q, for the gate and the candidate side by side; q itself for a form without either."""
        return torch.cat(self._query_parts(query), dim=-1)

    def offer(self, context: Float[Tensor, "other part dim"]) -> Float[Tensor, "other part more"]:
        """W_a c + b likewise. The weights α sum to one, and so add b once."""
        parts = [F.linear(context, layer.weight[:, self.dim :], layer.bias) for layer in self._layers]
        return torch.cat(parts, dim=-1) if parts else context

    def forward(
        self,
        query: Float[Tensor, "#other query dim"],
        weights: Float[Tensor, "other query part"],
        offered: Float[Tensor, "other part more"],
        recalled: Float[Tensor, "#other query more"] | None = None,
    ) -> Float[Tensor, "#other query dim"]:
        """The queries after a step with these weights; `recalled` is `recall(query)`, if that is known."""
        if self.form == "none":
            return query
        layers = max(1, len(self._layers))
        own = self._query_parts(query) if recalled is None else list(recalled.chunk(layers, dim=-1))
        mixed = [  # W [q ; a] + b = W_q q + Σ α (W_a c + b)
            torch.baddbmm(mine, weights.type_as(mine), theirs.type_as(mine))
            for mine, theirs in zip(own, offered.chunk(layers, dim=-1), strict=True)
        ]
        if self.form == "gate":
            gate, candidate = mixed[0].sigmoid(), mixed[1].tanh()  # (3–4)
            updated = torch.lerp(candidate, query.type_as(gate), gate)  # (5)
        else:
            updated = mixed[0].tanh() if self.form == "mlp" else mixed[0]
        return unit(updated) if self.unit_length else updated

    @property
    def _layers(self) -> list[nn.Linear]:
        return [layer for layer in (self.gate, self.candidate) if layer is not None]

    def _query_parts(self, query: Float[Tensor, "*item query dim"]) -> list[Tensor]:
        return [F.linear(query, layer.weight[:, : self.dim]) for layer in self._layers] or [query]
