"""IMRAM: Iterative Matching with Recurrent Attention Memory for Cross-Modal Image-Text Retrieval (Chen, Ding, Liu,
Lin, Liu, Han; CVPR 2020).

SCAN attends once. Here every word attends to the regions, takes what it attended to into memory and attends again, K
times; so do the regions, attending to words. Each time, the attended vector is compared with what the query was *at
first*, and all K comparisons count. For queries q and a context c, at step k:

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, Batch, ImageCode, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.matcher import FragmentConfig, FragmentMatcher
from saccade.models.base.registry import register
from saccade.nn import at_least_float32, attended_cosine, full_precision, products, unit
from saccade.ops import (
    AttentionForm,
    Context,
    Normaliser,
    Queries,
    attended_similarity,
    attention_weights,
    pool,
)
from saccade.ops.all_pairs import all_pairs
from saccade.ops.recurrent_attention import RECURRENT_ATTENTION, MemoryWeights, RecurrentProblem, recurrent_attention

MemoryForm = Literal["gate", "mlp", "add", "none"]


@dataclass(frozen=True)
class ImramConfig(FragmentConfig):
    """The paper's full model for Flickr30k."""

    queries: Literal["words", "regions", "both"] = "both"  # text-IMRAM, image-IMRAM, the full model
    steps: int = 3  # K: how often a query attends
    memory: MemoryForm = "gate"  # mlp, add: without the gate; none: nothing is remembered, so that all steps are alike
    unit_memory: bool = False  # scale remembered queries to length one; the official scripts do not
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

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return torch.stack([side.similarity(images, texts) for side in self._sides()]).sum(dim=0)  # (7)

    def pair(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return torch.stack([side.similarities(images, texts).sum(dim=0) for side in self._sides()]).sum(dim=0)  # (7)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Picture p with text p: every step of the words (of the regions, where they alone attend)."""
        words, regions = (s.align(images, texts) if s is not None else None for s in (self.words_ask, self.regions_ask))
        if words is None or regions is None:
            one = words or regions
            assert one is not None
            return one
        return replace(words, score=words.score + regions.score, region_score=regions.region_score)

    def _sides(self) -> list[RecurrentAttention]:
        return [side for side in (self.words_ask, self.regions_ask) if side is not None]


@dataclass(frozen=True)
class Fragments(Batch):
    """One side: its vectors, zero where padded, and what they bring into an update of the memory."""

    vectors: Float[Tensor, "item part dim"]
    mask: Bool[Tensor, "item part"]
    brought: Float[Tensor, "item part more"]  # W_q q of queries, W_a c + b of a context

    def trimmed(self, longest: int) -> Fragments:
        return self.map(lambda tensor: tensor[:, :longest])


class RecurrentAttention(nn.Module):
    """The paper's RAM block, K times over: attend, compare, remember. Words attend to regions, or regions to words."""

    def __init__(self, queries: Literal["words", "regions"], config: ImramConfig) -> None:
        super().__init__()
        self.words_ask, self.steps, self.budget = queries == "words", config.steps, config.budget_mb << 20
        self.form = AttentionForm(config.normaliser, config.sharpness, config.slope, pool=config.pool)
        memory = config.memory if config.steps > 1 else "none"
        self.memory = MemoryDistillation(config.dim, memory, config.unit_memory)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Σ_k F_k of every picture with every text."""
        queries, context = self._roles(images, texts)
        if self.memory.form == "none":  # all steps are the first one, which is SCAN's
            table = self.steps * attended_similarity(queries, context, self.form, self.budget)
        else:

            def plain() -> Float[Tensor, "item other"]:
                parts = self.prepare(images, texts)
                table = all_pairs(self.pair, *parts, tuple(self.parameters()), self.budget)
                return table.T if self.words_ask else table

            options = self.memory.weights(), self.form, self.steps, self.budget
            table = recurrent_attention(RecurrentProblem(queries, context, *options, plain))
        return table.T if self.words_ask else table

    def similarities(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "step image text"]:
        """F_k of every step k."""
        return self._steps_of(*self.prepare(images, texts))

    def pair(self, images: Fragments, texts: Fragments) -> Float[Tensor, "image text"]:
        return self._steps_of(images, texts).sum(dim=0)

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[Fragments, Fragments]:
        queries, context = self._roles(images, texts)
        asking, asked = (side.vectors * side.mask[..., None] for side in (queries, context))
        sides = (
            Fragments(asking, queries.mask, self.memory.recall(asking)),
            Fragments(asked, context.mask, self.memory.offer(asked)),
        )
        return (sides[1], sides[0]) if self.words_ask else sides

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        seen, read = self.prepare(images, texts)
        queries, context = (read, seen) if self.words_ask else (seen, read)
        weights, match = zip(*self.attend(queries, context, every_pair=False), strict=True)
        steps, found = torch.cat(weights, dim=1), torch.cat(match, dim=1).mean(dim=1) * queries.mask
        score = self.steps * pool(found, queries.mask, self.form.pool)
        if self.words_ask:
            return Alignment(steps[:, -1], score, texts.mask, images.mask, word_score=found, steps=steps)
        steps = steps.mT
        return Alignment(steps[:, -1], score, texts.mask, images.mask, region_score=found, steps=steps)

    def attend(
        self, queries: Fragments, context: Fragments, every_pair: bool = True
    ) -> Iterator[tuple[Float[Tensor, "other item query part"], Float[Tensor, "other item query"]]]:
        """Of each step its weights α and cosines: every item with every other, or (one item to each) p with p."""
        there = queries.mask[None] if every_pair else queries.mask[:, None]
        pairs = (1, -1) if every_pair else queries.mask.shape  # the queries of all items in one row, or each alone
        first = query = queries.vectors.reshape(*pairs, queries.vectors.shape[-1])
        recalled = queries.brought.reshape(*pairs, queries.brought.shape[-1])
        with full_precision(query):
            length = torch.linalg.vector_norm(first, dim=-1).view(there.shape)
            gram = products(context.vectors, context.vectors)[:, None]
        at_first = None
        for step in range(self.steps):
            scores = at_least_float32(query @ context.vectors.mT).view(len(context), *there.shape[1:], -1)  # (1)
            weights = attention_weights(scores.mT, there, context.mask[:, None], self.form).mT  # (1–2)
            at_first = scores if at_first is None else at_first
            yield weights, attended_cosine(weights, at_first, length, gram)  # (6)
            if step + 1 < self.steps:  # what is attended to last is remembered by nobody
                query = self.memory(query, weights.flatten(1, 2), context.brought, recalled if step == 0 else None)

    def _steps_of(self, images: Fragments, texts: Fragments) -> Float[Tensor, "step image text"]:
        queries, context = (texts, images) if self.words_ask else (images, texts)
        steps = [pool(match, queries.mask[None], self.form.pool) for _, match in self.attend(queries, context)]
        return torch.stack(steps) if self.words_ask else torch.stack(steps).mT

    def _roles(self, images: ImageCode, texts: TextCode) -> tuple[Queries, Context]:
        regions, words = (images.regions, images.mask), (texts.words, texts.mask)
        return (Queries(*words), Context(*regions)) if self.words_ask else (Queries(*regions), Context(*words))


class MemoryDistillation(nn.Module):
    """`gate`: (3–5), `mlp`: q ← u, `add`: q ← q + a, `none`: q ← q; `unit_length` scales q to length one."""

    def __init__(self, dim: int, form: MemoryForm = "gate", unit_length: bool = False) -> None:
        super().__init__()
        self.dim, self.form, self.unit_length = dim, form, unit_length
        self.gate = nn.Linear(2 * dim, dim) if form == "gate" else None
        self.candidate = nn.Linear(2 * dim, dim) if form in ("gate", "mlp") else None

    @property
    def layers(self) -> list[nn.Linear]:
        """W [q ; a] + b: of the gate and the candidate, as far as this form has them."""
        return [layer for layer in (self.gate, self.candidate) if layer is not None]

    def weights(self) -> MemoryWeights | None:
        """For backends of the paper's own form; None: it is another."""
        if self.gate is None or self.candidate is None or self.unit_length:
            return None
        return MemoryWeights(self.gate.weight, self.gate.bias, self.candidate.weight, self.candidate.bias)

    def recall(self, query: Float[Tensor, "*item query dim"]) -> Float[Tensor, "*item query more"]:
        """What queries bring into an update: W_q q, for the gate and the candidate side by side."""
        return self._mapped(query, [(layer.weight[:, : self.dim], None) for layer in self.layers])

    def offer(self, context: Float[Tensor, "other part dim"]) -> Float[Tensor, "other part more"]:
        """What each context vector brings: W_a c + b. The weights α sum to one, and so bring b once."""
        return self._mapped(context, [(layer.weight[:, self.dim :], layer.bias) for layer in self.layers])

    def forward(
        self,
        query: Float[Tensor, "#other query dim"],
        weights: Float[Tensor, "other query part"],
        offered: Float[Tensor, "other part more"],
        recalled: Float[Tensor, "#other query more"] | None = None,
    ) -> Float[Tensor, "#other query dim"]:
        """The queries after a step with these weights; `recalled` is what they bring into it, if that is known."""
        if self.form == "none":
            return query
        if recalled is None:
            own: Sequence[Tensor] = [F.linear(query, layer.weight[:, : self.dim]) for layer in self.layers] or [query]
        else:
            own = recalled.chunk(max(1, len(self.layers)), dim=-1)
        made_here = recalled is None and self.layers and len(query) == len(weights)  # and so may be written over
        mixed = []  # W [q ; a] + b
        for mine, theirs in zip(own, offered.chunk(len(own), dim=-1), strict=True):
            shares, theirs = weights.to(mine.dtype), theirs.to(mine.dtype)
            mixed.append(mine.baddbmm_(shares, theirs) if made_here else torch.baddbmm(mine, shares, theirs))
        if self.form == "gate":
            gate, candidate = mixed[0].sigmoid_(), mixed[1].tanh_()  # (3–4)
            updated = torch.lerp(candidate, query.to(gate.dtype), gate)  # (5)
        else:
            updated = mixed[0].tanh_() if self.form == "mlp" else mixed[0]
        return unit(at_least_float32(updated)) if self.unit_length else updated

    def _mapped(self, vectors: Tensor, maps: list[tuple[Tensor, Tensor | None]]) -> Tensor:
        return torch.cat([F.linear(vectors, *each) for each in maps], dim=-1) if maps else vectors

    def extra_repr(self) -> str:
        return f"{self.form}{', of length one' if self.unit_length else ''}"
