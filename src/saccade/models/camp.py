"""CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval (Wang, Liu, Li, Sheng, Yan et al.; ICCV 2019).

Regions and words tell each other what they found, a gate lets in what agrees, and the pair is judged by what both have
become: beside another sentence a picture is another picture. `docs/systems/camp.md` has the equations.

A message is a weighted sum of the other side's vectors, so whatever is linear in it is taken of those vectors, once per
item; a pair has weights of its own only. What is left to do per pair is the pooling, behind the ReLU of the fusion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, einsum, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, TextBatch, TextCode
from saccade.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.fragments import FragmentConfig, FragmentMatcher
from saccade.models.registry import register
from saccade.nn import all_pairs, triplet_loss, unit
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
    message_loss: float = 0.0  # weight of the pre-training's cosine as a loss beside, to train all in one run

    def __post_init__(self) -> None:
        for name in ("heads", "text_length", "message_loss"):
            if getattr(self, name) < 0:
                raise SaccadeError(f"{name} must be zero or more, not {getattr(self, name)}")


class Received(NamedTuple):
    """What the fragments of one side found in the other, pair by pair, and what became of them."""

    looked: Float[Tensor, "*pair fragment other"]  # the weights of the first look
    cosine: Float[Tensor, "*pair fragment"]  # of each with its message
    gate: Float[Tensor, "*pair fragment"] | None
    pooled: Float[Tensor, "*pair dim"]


class HeadPool(nn.Module):
    """The share of each fragment: softmax(L₂ ReLU(L₁ x)) over fragments, the mean of the heads.

    Where x is a sum, L₁ of a part that all pairs have in common may be given. L₂ has no bias: a softmax is blind to it.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.heads = nn.Linear(dim, heads, bias=False)

    def forward(
        self,
        vectors: Float[Tensor, "*pair fragment dim"],
        mask: Bool[Tensor, "*#pair fragment"],
        known: Float[Tensor, "*#pair fragment dim"] | None = None,
    ) -> Float[Tensor, "*pair 1 fragment"]:
        hidden = self.hidden(vectors)
        hidden = hidden.relu() if known is None else (hidden + known.to(hidden.dtype)).relu_()
        return softmax(at_least_float32(self.heads(hidden)).transpose(-1, -2), mask).mean(dim=-2, keepdim=True)


def softmax(scores: Float[Tensor, "*pair query part"], mask: Bool[Tensor, "*#pair part"]) -> Tensor:
    return scores.masked_fill(~mask[..., None, :], torch.finfo(scores.dtype).min).softmax(dim=-1)


def products(one: Float[Tensor, "*#pair query dim"], other: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """Q Kᵀ; an axis of pairs that only one of the two has is never copied."""
    return einsum("...qd,...pd->...qp", one, other)


def summed(weights: Float[Tensor, "*#pair query part"], vectors: Float[Tensor, "*#pair part dim"]) -> Tensor:
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
        names = [f"{side}_{name}" for side in sides for name in self.maps]
        self.look = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in names})
        self.pool: Mapping[str, HeadPool] = nn.ModuleDict(  # type: ignore[assignment]
            {side: HeadPool(dim, config.heads) for side in sides if config.heads}
        )
        if config.fusion:
            self.fuse: Mapping[str, nn.Linear] = nn.ModuleDict(  # type: ignore[assignment]
                {side: nn.Linear(2 * dim, dim, bias=config.rounds == 1) for side in sides}
            )
            self.judge = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))
        fused = ("own", "sent", *(["hidden"] if config.heads else [])) if config.fusion else ()
        self.parts = ("itself", *self.maps, *fused)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return self._table(images, texts, self.config.fusion)

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """What the paper trains first, trained along: while attention finds nothing, the judge has nothing to learn."""
        if not self.config.message_loss:
            return {}
        told = self._table(images, self.encode_texts(texts), fused=False)
        loss = triplet_loss(told, negatives="all", owner=owner) / max(1, len(owner))
        return {"message_loss": self.config.message_loss * loss}

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        regions, words = self._fragments(*self._mapped(images, texts))
        fused = self.config.fusion
        seen, read = self._receive("regions", regions, words, fused), self._receive("words", words, regions, fused)
        count = texts.mask.shape[1]  # text_length adds a place
        return Alignment(
            read.looked[:, :count] * texts.mask[:, :, None],
            self._score(seen.pooled, read.pooled, self.config.fusion),
            texts.mask,
            images.mask,
            word_score=read.cosine[:, :count] * texts.mask,
            region_score=seen.cosine * images.mask,
            word_gate=None if read.gate is None else read.gate[:, :count] * texts.mask,
            region_gate=None if seen.gate is None else seen.gate * images.mask,
        )

    def pooled(self, images: ImageCode, texts: TextCode) -> tuple[Tensor, Tensor]:
        """What each picture becomes beside each sentence, and each sentence beside each picture: [image, text, dim]."""
        return self._meet(*self._mapped(images, texts), self.config.fusion)

    def _table(self, images: ImageCode, texts: TextCode, fused: bool) -> Float[Tensor, "image text"]:
        def tile(images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
            return self._score(*self._meet(images, texts, fused), fused)

        def floats_per_pair(regions: int, words: int) -> int:
            vectors = 3 * (regions + words) if fused or self.config.heads else 4
            return int(vectors * self.config.dim + 12 * regions * words + 2 * (regions**2 + words**2))

        return all_pairs(tile, *self._mapped(images, texts), floats_per_pair, self.config.budget_mb << 20)

    def _meet(self, images: ImageCode, texts: TextCode, fused: bool) -> tuple[Tensor, Tensor]:
        regions, words = self._fragments(images, texts)
        seen = self._receive("regions", regions, {name: value[:, None] for name, value in words.items()}, fused)
        read = self._receive("words", words, {name: value[:, None] for name, value in regions.items()}, fused)
        return seen.pooled.transpose(0, 1), read.pooled

    def _mapped(self, images: ImageCode, texts: TextCode) -> tuple[ImageCode, TextCode]:
        """Each vector beside all that it is mapped to before it meets the other side: once per item, not per pair."""
        regions, words = self._map("regions", "words", images.regions), self._map("words", "regions", texts.words)
        return replace(images, regions=regions), replace(texts, words=words)

    def _map(self, side: str, other: str, vectors: Float[Tensor, "item fragment dim"]) -> Tensor:
        found = [vectors, *(self.look[f"{side}_{name}"](vectors) for name in self.maps)]
        if self.config.fusion:  # F [v ; v^] is one map of the fragment itself and one of the message sent to it
            own, sent = self.fuse[side].weight[:, : self.config.dim], self.fuse[other].weight[:, self.config.dim :]
            known = [self.pool[side].hidden.weight] if self.config.heads else []
            found += [F.linear(vectors, weight) for weight in (own, sent, *known)]
        return torch.cat(found, dim=-1)

    def _fragments(self, images: ImageCode, texts: TextCode) -> tuple[Fragments, Fragments]:
        words, mask, share = texts.words, texts.mask, texts.mask.to(texts.words.dtype)
        if self.config.text_length and not self.config.heads:  # empty places all find the same: one stands for them
            empty = (self.config.text_length - share.sum(dim=-1, keepdim=True)).clamp(min=0)
            words, mask, share = F.pad(words, (0, 0, 0, 1)), F.pad(mask, (0, 1)), torch.cat([share, empty], dim=-1)
        return self._split(images.regions, images.mask, images.mask.to(share.dtype)), self._split(words, mask, share)

    def _split(self, mapped: Tensor, mask: Bool[Tensor, "item fragment"], share: Tensor) -> Fragments:
        found = dict(zip(self.parts, mapped.chunk(len(self.parts), dim=-1), strict=True))
        mean = share / share.sum(dim=-1, keepdim=True).clamp(min=1)
        return {"key": found["query"], **found, "mask": mask, "mean": mean[:, None]}

    def _look(self, own: Fragments, other: Fragments) -> tuple[Tensor, Tensor]:
        """How much each fragment takes from each of the other side: at first, and in the end."""
        scale = self.config.dim**-0.5
        first = softmax(scale * products(own["query"], other["key"]), other["mask"])  # P: the messages V~ = P T
        if self.config.rounds == 1:
            return first, first
        between = products(other["query_again"], other["key_again"])  # (A_q T)(A_k T)ᵀ
        again = products(summed(first, between), first)  # (A_q V~)(A_k V~)ᵀ = P (A_q T)(A_k T)ᵀ Pᵀ
        return first, summed(softmax(scale * again, own["mask"]), first)  # R: the messages V^ = R T

    def _receive(self, side: str, own: Fragments, other: Fragments, fused: bool) -> Received:
        """What one side makes of the other's messages; the comments are for regions V that hear of words T."""
        config: CampConfig = self.config
        with exact(own["itself"]):
            looked, weights = self._look(own, other)
            gram = products(other["itself"], other["itself"])  # T Tᵀ
            length = (summed(weights, gram) * weights).sum(dim=-1).clamp(min=1e-16).sqrt() + 1e-8  # |v^|² = r T Tᵀ rᵀ
            match = (weights * products(own["itself"], other["itself"])).sum(dim=-1)  # v · v^ = r T v
            cosine = match / length / (torch.linalg.vector_norm(own["itself"], dim=-1) + 1e-8)
            if not fused:
                learned = config.heads and not config.fusion
                share = self.pool[side](summed(weights, other["itself"]), own["mask"]) if learned else own["mean"]
                return Received(looked, cosine, None, unit(summed(summed(share, weights), other["itself"])[..., 0, :]))
            if config.rounds == 2:  # messages of length one
                weights, match = weights / length[..., None], match / length
            gate = match.sigmoid() if config.gate else torch.ones_like(match)
        become = self._fused(side, own, other, weights, gate[..., None])  # ReLU(F (g [v ; v^])), to be added to v
        share = self.pool[side](become, own["mask"], own["hidden"]) if config.heads else own["mean"]
        with exact(become):
            pooled = (summed(share.to(become.dtype), become) + summed(share, own["itself"]))[..., 0, :]
        return Received(looked, cosine, gate if config.gate else None, unit(pooled) if config.rounds == 2 else pooled)

    def _fused(self, side: str, own: Fragments, other: Fragments, weights: Tensor, gate: Tensor) -> Tensor:
        message = summed(gate * weights, other["sent"])
        fused = torch.addcmul(message, gate.to(message.dtype), own["own"].to(message.dtype))
        bias = self.fuse[side].bias  # the older model has one
        return (fused if bias is None else fused + bias.to(fused.dtype)).relu_()

    def _score(self, seen: Float[Tensor, "*pair dim"], read: Float[Tensor, "*pair dim"], fused: bool) -> Tensor:
        with exact(seen):
            if not fused:
                return (seen * read).sum(dim=-1)
            logit: Tensor = self.judge(torch.cat([seen, read], dim=-1))
            return logit[..., 0].sigmoid()
