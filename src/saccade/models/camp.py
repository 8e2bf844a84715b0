"""CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval (Wang, Liu, Li, Sheng, Yan et al.; ICCV 2019).

Regions and words tell each other what they found, a gate lets in what agrees, and the pair is judged by what both have
become: beside another sentence a picture is another picture. `docs/systems/camp.md` has the equations.

A message is a weighted sum of the other side's vectors, so whatever is linear in it is taken of those vectors, once per
item; a pair has weights of its own only. What is left to do per pair is the pooling, behind the ReLU of the fusion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, einsum, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, TextCode
from saccade.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.fragments import FragmentConfig, FragmentMatcher
from saccade.models.registry import register
from saccade.nn import all_pairs, unit
from saccade.nn.encode import at_least_float32

Fragments = dict[str, Tensor]  # one side as it meets the other: its vectors ("itself"), what they are mapped to, masks


@dataclass(frozen=True)
class CampConfig(FragmentConfig):
    """The full model of the official code."""

    unit_regions: bool = False
    unit_words: bool = False
    rounds: Literal[1, 2] = 2  # of attention; 1: the older model, with one map for queries and keys
    fusion: bool = True  # False: the cosine of the pooled messages, for pre-training
    gate: bool = True  # False: the ablation, every message comes in
    heads: int = 4  # of the attention that pools fragments; 0: their mean
    text_length: int = 0  # the mean is over so many places for words, empty ones too, as officially; 0: over words

    def __post_init__(self) -> None:
        if self.heads < 0 or self.text_length < 0:
            raise SaccadeError(f"heads={self.heads} and text_length={self.text_length}: both must be zero or more")


class Received(NamedTuple):
    """What the fragments of one side found in the other, pair by pair, and what became of them."""

    looked: Float[Tensor, "*pair fragment other"]  # the weights of the first look
    cosine: Float[Tensor, "*pair fragment"]  # of each with its message
    gate: Float[Tensor, "*pair fragment"] | None
    pooled: Float[Tensor, "*pair dim"]


class HeadPool(nn.Module):
    """The share of each fragment: softmax(L₂ ReLU(L₁ x)) over fragments, the mean of the heads.

    L₂ has no bias, for a softmax would not see it.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.heads = nn.Linear(dim, heads, bias=False)

    def forward(
        self, vectors: Float[Tensor, "*pair fragment dim"], mask: Bool[Tensor, "*pair fragment"]
    ) -> Float[Tensor, "*pair 1 fragment"]:
        scores = at_least_float32(self.heads(self.hidden(vectors).relu()))
        return softmax(scores.transpose(-1, -2), mask).mean(dim=-2, keepdim=True)


def softmax(scores: Float[Tensor, "*pair query part"], mask: Bool[Tensor, "*pair part"]) -> Tensor:
    return scores.masked_fill(~mask[..., None, :], torch.finfo(scores.dtype).min).softmax(dim=-1)


def products(one: Float[Tensor, "*pair query dim"], other: Float[Tensor, "*pair part dim"]) -> Tensor:
    """Q Kᵀ; a pair axis of size one is never copied."""
    return einsum("...qd,...pd->...qp", one, other)


def summed(weights: Float[Tensor, "*pair query part"], vectors: Float[Tensor, "*pair part dim"]) -> Tensor:
    """P T."""
    return einsum("...qp,...pd->...qd", weights, vectors)


def exact(like: Tensor) -> torch.autocast:
    """Softmaxes, gates and scores stay out of mixed precision."""
    return torch.autocast(like.device.type, enabled=False)


@register(
    "camp",
    task="matching",
    title="CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval",
    venue="Wang et al., ICCV 2019",
)
class Camp(FragmentMatcher):
    Config = CampConfig

    def __init__(self, config: CampConfig, vocabulary: Vocabulary, eye: str | None = None) -> None:
        super().__init__(config, vocabulary, eye)
        dim, sides = config.dim, ("regions", "words")
        self.maps = ("query", "key", "query_again", "key_again") if config.rounds == 2 else ("query",)
        self.look = nn.ModuleDict(
            {f"{side}_{name}": nn.Linear(dim, dim, bias=False) for side in sides for name in self.maps}
        )
        if config.heads:
            self.pool = nn.ModuleDict({side: HeadPool(dim, config.heads) for side in sides})
        if config.fusion:
            self.fuse = nn.ModuleDict({side: nn.Linear(2 * dim, dim, bias=config.rounds == 1) for side in sides})
            self.judge = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))
        self.parts = ("itself", *self.maps, *(("own", "sent") if config.fusion else ()))

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        def tile(images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
            return self._score(*self.meet(images.regions[:, None], images.mask[:, None], texts.words, texts.mask))

        return all_pairs(tile, *self.mapped(images, texts), self._floats_per_pair, self.config.budget_mb << 20)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        mapped_images, mapped_texts = self.mapped(images, texts)
        seen, read = self.meet(mapped_images.regions, images.mask, mapped_texts.words, texts.mask)
        words = texts.mask.shape[1]  # text_length adds a place
        return Alignment(
            read.looked[:, :words] * texts.mask[:, :, None],
            self._score(seen, read),
            texts.mask,
            images.mask,
            word_score=read.cosine[:, :words] * texts.mask,
            region_score=seen.cosine * images.mask,
            word_gate=None if read.gate is None else read.gate[:, :words] * texts.mask,
            region_gate=None if seen.gate is None else seen.gate * images.mask,
        )

    def mapped(self, images: ImageCode, texts: TextCode) -> tuple[ImageCode, TextCode]:
        """Each vector beside all that it is mapped to before it meets the other side: once per item, not per pair."""
        regions, words = self._map("regions", "words", images.regions), self._map("words", "regions", texts.words)
        return replace(images, regions=regions), replace(texts, words=words)

    def _map(self, side: str, other: str, vectors: Float[Tensor, "item fragment dim"]) -> Tensor:
        mapped = [vectors, *(self.look[f"{side}_{name}"](vectors) for name in self.maps)]
        if self.config.fusion:  # F [v ; v^] is one map of the fragment itself and one of the message sent to it
            own, sent = (self._fusion(name).weight.chunk(2, dim=1)[half] for half, name in enumerate((side, other)))
            mapped += [F.linear(vectors, own), F.linear(vectors, sent)]
        return torch.cat(mapped, dim=-1)

    def _fusion(self, side: str) -> nn.Linear:
        layer = self.fuse[side]
        assert isinstance(layer, nn.Linear)
        return layer

    def _fragments(self, mapped: Tensor, mask: Bool[Tensor, "*item fragment"], places: int = 0) -> Fragments:
        share = mask.to(mapped.dtype)
        if places and not self.config.heads:  # the empty places all find the same: one more stands for all of them
            share = torch.cat([share, (places - share.sum(dim=-1, keepdim=True)).clamp(min=0)], dim=-1)
            mapped, mask = F.pad(mapped, (0, 0, 0, 1)), F.pad(mask, (0, 1))
        found = dict(zip(self.parts, mapped.chunk(len(self.parts), dim=-1), strict=True))
        found["mask"], found["share"] = mask, share / share.sum(dim=-1, keepdim=True).clamp(min=1)
        return {"key": found["query"], **found}

    def meet(self, regions: Tensor, seen: Tensor, words: Tensor, read: Tensor) -> tuple[Received, Received]:
        """Both sides hear of each other: pair by pair, or all pairs where an axis of size one says so."""
        images, texts = self._fragments(regions, seen), self._fragments(words, read, self.config.text_length)
        return self._receive("regions", images, texts), self._receive("words", texts, images)

    def _look(self, own: Fragments, other: Fragments) -> tuple[Tensor, Tensor]:
        """How much each fragment takes from each of the other side: at first, and in the end."""
        scale = self.config.dim**-0.5
        first = softmax(scale * products(own["query"], other["key"]), other["mask"])  # P: the messages V~ = P T
        if self.config.rounds == 1:
            return first, first
        between = products(other["query_again"], other["key_again"])  # (A_q T)(A_k T)ᵀ
        again = products(summed(first, between), first)  # (A_q V~)(A_k V~)ᵀ = P (A_q T)(A_k T)ᵀ Pᵀ
        return first, summed(softmax(scale * again, own["mask"]), first)  # R: the messages V^ = R T

    def _receive(self, side: str, own: Fragments, other: Fragments) -> Received:
        """What one side makes of the other's messages; the comments are for regions V that hear of words T."""
        config = self.config
        with exact(own["itself"]):
            looked, weights = self._look(own, other)
            gram = products(other["itself"], other["itself"])  # T Tᵀ
            length = (summed(weights, gram) * weights).sum(dim=-1).clamp(min=1e-16).sqrt() + 1e-8  # |v^|² = r T Tᵀ rᵀ
            match = (weights * products(own["itself"], other["itself"])).sum(dim=-1)  # v · v^ = r T v
            cosine = match / length / (torch.linalg.vector_norm(own["itself"], dim=-1) + 1e-8)
            if not config.fusion:
                share = self._share(side, own, summed(weights, other["itself"]) if config.heads else weights)
                return Received(looked, cosine, None, unit(summed(summed(share, weights), other["itself"])[..., 0, :]))
            if config.rounds == 2:  # messages of length one
                weights, match = weights / length[..., None], match / length
            gate = match.sigmoid() if config.gate else torch.ones_like(match)  # g
        fused = gate[..., None] * (own["own"] + summed(weights, other["sent"]))  # F (g [v ; v^])
        bias = self._fusion(side).bias  # the older model has one
        vectors = F.relu(fused if bias is None else fused + bias) + own["itself"]
        share = self._share(side, own, vectors)
        with exact(vectors):
            pooled = summed(share, vectors)[..., 0, :]
        return Received(looked, cosine, gate if config.gate else None, unit(pooled) if config.rounds == 2 else pooled)

    def _share(self, side: str, own: Fragments, vectors: Tensor) -> Float[Tensor, "*pair 1 fragment"]:
        if self.config.heads:
            share: Tensor = self.pool[side](vectors, own["mask"])
            return share
        return own["share"][..., None, :].expand(*vectors.shape[:-2], 1, -1)

    def _score(self, seen: Received, read: Received) -> Float[Tensor, "*pair"]:
        with exact(seen.pooled):
            if not self.config.fusion:
                return (seen.pooled * read.pooled).sum(dim=-1)
            logit: Tensor = self.judge(torch.cat([seen.pooled, read.pooled], dim=-1))
            return logit[..., 0].sigmoid()

    def _floats_per_pair(self, regions: int, words: int) -> int:
        config: CampConfig = self.config
        vectors = 5 * (regions + words) if config.fusion or config.heads else 4
        return vectors * config.dim + 12 * regions * words + 2 * (regions**2 + words**2)
