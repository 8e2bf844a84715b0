"""IMRAM: Iterative Matching with Recurrent Attention Memory for Cross-Modal Image-Text Retrieval (Chen, Ding, Liu,
Lin, Liu, Han; CVPR 2020).

SCAN looks once. Here every word looks for its regions, takes what it found into memory and looks again, K times; so do
the regions, looking for words. The finds of every look are compared with what the word was at first, and all K
comparisons count. `docs/systems/imram.md` has the equations in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import Alignment, ImageCode, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.registry import register
from saccade.models.fragments import FragmentConfig, FragmentMatcher
from saccade.nn import (
    Attend,
    MemoryDistillation,
    MemoryForm,
    all_pairs,
    at_least_float32,
    found_length,
    full_precision,
    products,
)
from saccade.nn.memory_looks import looks_suit_kernels, similarity_of_looks
from saccade.nn.memory_looks_cpu import native_looks, similarity_of_looks_on_cpu
from saccade.ops import EPSILON, AttentionForm, Normaliser, attention_weights, pool


@dataclass(frozen=True)
class ImramConfig(FragmentConfig):
    """The paper's full model for Flickr30k."""

    queries: Literal["words", "regions", "both"] = "both"  # text-IMRAM, image-IMRAM, the full model
    steps: int = 3  # K: how often a query looks
    memory: MemoryForm = "gate"  # mlp, add: without the gate; none: nothing is remembered, so that every look is alike
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
    quick_bits: ClassVar[Mapping[str, torch.dtype]] = {"cuda": torch.bfloat16, "cpu": torch.int8}

    def __init__(self, config: ImramConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # the encoders, as SCAN's
        self.words_ask = RecurrentAttention("words", config) if config.queries != "regions" else None
        self.regions_ask = RecurrentAttention("regions", config) if config.queries != "words" else None

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """F = Σ_k F_k: the sum of all looks, of the words and of the regions."""
        sides = [side for side in (self.words_ask, self.regions_ask) if side is not None]
        return torch.stack([side.similarity(images, texts) for side in sides]).sum(dim=0)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Picture p with sentence p: every look of the words (of the regions, where they alone ask)."""
        words, regions = (s.align(images, texts) if s is not None else None for s in (self.words_ask, self.regions_ask))
        if words is None or regions is None:
            one = words or regions
            assert one is not None
            return one
        return replace(words, score=words.score + regions.score, region_score=regions.region_score)


class RecurrentAttention(nn.Module):
    """The paper's RAM block, K times over: look, compare, remember. Words ask regions, or regions ask words."""

    def __init__(self, queries: Literal["words", "regions"], config: ImramConfig) -> None:
        super().__init__()
        self.words_ask, self.steps, self.dim = queries == "words", config.steps, config.dim
        self.form = AttentionForm(config.normaliser, config.sharpness, config.slope, pool=config.pool)
        self.scan = Attend(queries, self.form, config.budget_mb << 20)
        memory = config.memory if config.steps > 1 else "none"
        self.memory = MemoryDistillation(config.dim, memory, config.unit_memory)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Σ_k F_k of every picture with every sentence, tile by tile."""
        if self.memory.form == "none":  # all looks are the first one, which is SCAN's
            return self.steps * self.scan.similarity(images, texts)

        roles = self._roles(images, texts)
        if looks_suit_kernels(roles[0], roles[2], self.memory, self.form):
            found = similarity_of_looks(*roles, self.memory, self.form, self.steps, self.scan.budget)
            return found if self.words_ask else found.T
        if (loops := native_looks(roles[0], roles[2], self.memory, self.form, self.steps)) is not None:
            found = similarity_of_looks_on_cpu(*roles, loops, self.scan.budget)
            return found if self.words_ask else found.T

        def tile(images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
            return self.similarities(images, texts).sum(dim=0)

        with self.memory.merged():
            if not torch.is_grad_enabled():
                images, texts = self._remembered(images, texts)
            return all_pairs(
                tile, images, texts, self.parameters(), self._floats_per_pair, self.scan.budget, cpu_tile=48 << 20
            )

    def similarities(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "step image text"]:
        """F_k of each look k: the mean of its cosines over the queries. In one piece."""
        queries, there, context, real = self._roles(images, texts)
        recalled, offered = queries[None, :, :, self.dim :], context[:, :, self.dim :]  # empty, or see `_remembered`
        queries, context = queries[..., : self.dim], context[..., : self.dim]
        known = (recalled, offered) if recalled.shape[-1] else None
        looks = self.looks(queries[None], there[None], context, real, known)
        steps = torch.stack([pool(match, there[None], self.form.pool) for _, match in looks])
        return steps if self.words_ask else steps.transpose(1, 2)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        queries, there, context, real = self._roles(images, texts)
        weights, match = zip(*self.looks(queries[:, None], there[:, None], context, real), strict=True)
        steps, found = torch.cat(weights, dim=1), torch.cat(match, dim=1).mean(dim=1) * there
        score = self.steps * pool(found, there, self.form.pool)
        if self.words_ask:
            return Alignment(steps[:, -1], score, there, real, word_score=found, steps=steps)
        steps = steps.transpose(2, 3)
        return Alignment(steps[:, -1], score, real, there, region_score=found, steps=steps)

    def looks(
        self,
        queries: Float[Tensor, "#other item query dim"],
        query_mask: Bool[Tensor, "#other item query"],
        context: Float[Tensor, "other part dim"],
        context_mask: Bool[Tensor, "other part"],
        known: tuple[Tensor, Tensor] | None = None,  # what queries and context bring into an update
    ) -> Iterator[tuple[Float[Tensor, "other item query part"], Float[Tensor, "other item query"]]]:
        """Of each look its weights α and the cosines of what was found with what the queries were *at first*."""
        context = context * context_mask[:, :, None]
        place = query_mask.any(dim=0).flatten().nonzero()[:, 0]  # padding neither looks nor remembers
        query = (queries * query_mask[..., None]).flatten(1, 2).index_select(1, place)
        with full_precision(context):
            gram = products(context, context)[:, None]
            length: Tensor = torch.linalg.vector_norm(queries, dim=-1)
        offered = self.memory.offer(context) if known is None else known[1]  # padding has no weight
        recalled = None if known is None else known[0].flatten(1, 2).index_select(1, place)
        shape = (len(context), *query_mask.shape[1:], context.shape[1])
        first: Tensor | None = None  # the scores of the first look: q · c
        for step in range(self.steps):
            scores = _placed(at_least_float32(query @ context.mT), place, shape)
            weights = attention_weights(scores.mT, query_mask, context_mask[:, None], self.form).mT
            first = scores if first is None else first
            yield weights, _found_cosine(weights, first, length, gram)
            if step + 1 < self.steps:  # what the last look finds is remembered by nobody
                query = self.memory(query, weights.flatten(1, 2).index_select(1, place), offered, recalled)
                recalled = None  # of the first queries, which every pair has

    def _remembered(self, images: ImageCode, texts: TextCode) -> tuple[ImageCode, TextCode]:
        """Codes that have beside their vectors what these bring into an update: once for every item, not every tile."""
        if self.memory.candidate is None or torch.is_autocast_enabled(images.regions.device.type):
            return images, texts
        regions, words = images.regions * images.mask[..., None], texts.words * texts.mask[..., None]
        offer, recall = self.memory.offer, self.memory.recall
        beside = (offer(regions), recall(words)) if self.words_ask else (recall(regions), offer(words))
        seen, read = torch.cat([regions, beside[0]], dim=-1), torch.cat([words, beside[1]], dim=-1)
        return replace(images, regions=seen), replace(texts, words=read)

    def _roles(self, images: ImageCode, texts: TextCode) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and their mask, context and its mask."""
        regions, words = (images.regions, images.mask), (texts.words, texts.mask)
        return (*words, *regions) if self.words_ask else (*regions, *words)

    def _floats_per_pair(self, regions: int, words: int) -> int:
        learning = torch.is_grad_enabled()
        queries, parts = (words, regions) if self.words_ask else (regions, words)
        return queries * (self.memory.floats_per_query(self.steps, learning) + parts * (6 + 6 * self.steps * learning))


def _placed(
    scores: Float[Tensor, "other real part"], place: Int[Tensor, " real"], shape: tuple[int, ...]
) -> Float[Tensor, "other item query part"]:
    """The scores of real queries where they belong among the padding, whose score is zero."""
    return scores.new_zeros(shape).flatten(1, 2).index_copy(1, place, scores).view(shape)


def _found_cosine(
    weights: Float[Tensor, "other item query part"],
    scores: Float[Tensor, "other item query part"],
    length: Float[Tensor, "#other item query"],
    gram: Float[Tensor, "other 1 part part"],
) -> Float[Tensor, "other item query"]:
    """cos(q, a) of a = Σ α c without a: Σ α (q · c) / (|q| |a|), with |a| from the Gram matrix of the context."""
    with full_precision(weights):
        return (weights * scores).sum(dim=-1) / (length * found_length(weights, gram)).clamp(min=EPSILON)
