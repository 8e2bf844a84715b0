"""CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval (Wang, Liu, Li, Sheng, Yan et al.; ICCV 2019).

SCAN compares each word with what it found. Here regions and words *take in* what they found, as far as a gate lets it
in, and the pair is judged by what both have become: beside another sentence a picture is another picture.
`docs/systems/camp.md` has the equations in full; those in comments are for regions V that hear of words T.

A message is a weighted sum of the other side's vectors, so whatever is linear in it is taken of those vectors, once per
item; a pair has weights of its own only. What is left to do per pair is the pooling, behind the ReLU of the fusion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.registry import register
from saccade.models.fragments import FragmentConfig, FragmentMatcher
from saccade.nn import (
    HeadPool,
    all_pairs,
    found_length,
    full_precision,
    masked_softmax,
    products,
    summed,
    triplet_loss,
    unit,
)
from saccade.nn.messages_cpu import Mapped, library_for, pool_messages
from saccade.nn.precision import in_bytes
from saccade.nn.ragged import Ragged
from saccade.ops import EPSILON
from saccade.ops.native.messages import NativeMessages


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


@register(
    "camp",
    task="matching",
    title="CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval",
    venue="Wang et al., ICCV 2019",
)
class Camp(FragmentMatcher):
    Config = CampConfig
    quick_bits: ClassVar[Mapping[str, torch.dtype]] = {"cuda": torch.bfloat16, "cpu": torch.int8}

    def __init__(self, config: CampConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # the encoders, as SCAN's
        dim, sides = config.dim, ("regions", "words")
        self.maps = ("query", "key", "query_again", "key_again") if config.rounds == 2 else ("query",)
        names = [f"{side}_{name}" for side in sides for name in self.maps]
        self.look = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in names})  # W_q, W_k, A_q, A_k
        self.pool: Mapping[str, HeadPool] = nn.ModuleDict(  # type: ignore[assignment]
            {side: HeadPool(dim, config.heads) for side in sides if config.heads}  # L₁, L₂
        )
        if config.fusion:
            self.fuse: Mapping[str, nn.Linear] = nn.ModuleDict(  # type: ignore[assignment]
                {side: nn.Linear(2 * dim, dim, bias=config.rounds == 1) for side in sides}  # F
            )
            self.judge = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

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
            self._judged(seen.pooled, read.pooled, fused),
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
            return self._judged(*self._meet(images, texts, fused), fused)

        def floats_per_pair(regions: int, words: int) -> int:
            held = 4 if torch.is_grad_enabled() else 3  # vectors of each fragment
            vectors = held * (regions + words) if fused or self.config.heads else 4
            return int(vectors * self.config.dim + 12 * regions * words + 2 * (regions**2 + words**2))

        if fused and (loops := self._loops(images, texts)):
            return self._table_in_loops(images, texts, loops)
        mapped = self._mapped(images, texts)  # once for every item, not for every pair
        return all_pairs(tile, *mapped, self.parameters(), floats_per_pair, self.config.budget_mb << 20)

    def _loops(self, images: ImageCode, texts: TextCode) -> dict[str, NativeMessages]:
        """How either side hears in compiled loops, where these suit; else empty."""
        library = library_for(images.regions, texts.words) if self.config.heads else None
        if library is None:
            return {}
        form = library, self.config.rounds == 2, self.config.gate
        return {
            side: NativeMessages.prepared(*form, pool.hidden, pool.heads.weight, self.fuse[side].bias, in_bytes())
            for side, pool in self.pool.items()
        }

    def _table_in_loops(
        self, images: ImageCode, texts: TextCode, loops: dict[str, NativeMessages]
    ) -> Float[Tensor, "image text"]:
        """As many pairs at a time as fit the budget, each with what became of both sides."""
        regions = self._real("regions", "words", images.regions, images.mask, loops["regions"])
        words = self._real("words", "regions", texts.words, texts.mask, loops["words"])
        table, dim = images.regions.new_empty(len(images), len(texts)), self.config.dim
        (reads, *_), decide = self.judge, self.judge[1:]
        assert isinstance(reads, nn.Linear)
        pairs = max(1, (self.config.budget_mb << 20) // (12 * 4 * dim))
        wide = min(len(texts), max(int(pairs**0.5), pairs // len(images)))
        for some in _slices(len(images), max(1, pairs // wide)):
            for few in _slices(len(texts), wide):
                both = table.new_empty(some.stop - some.start, few.stop - few.start, 2 * dim)  # [p_v ; p_t]
                pool_messages(loops["regions"], regions, some, words, few, both[..., :dim].transpose(0, 1))
                pool_messages(loops["words"], words, few, regions, some, both[..., dim:])
                (hidden,) = loops["words"].maps(both.flatten(0, 1), [reads.weight])
                table[some, few] = decide(hidden.add_(reads.bias)).view(both.shape[:2]).sigmoid()
        return table

    def _real(self, side: str, other: str, vectors: Tensor, mask: Tensor, loops: NativeMessages) -> Mapped:
        """The real fragments of one side, mapped; (W_q v) · (W_k t) = v · (W_qᵀ W_k t)."""
        where, dim = Ragged(mask), self.config.dim
        real = where.real(vectors)
        look: Mapping[str, nn.Linear] = self.look  # type: ignore[assignment]
        key, *again = (look[f"{side}_{name}"].weight for name in self.maps if name != "query" or len(self.maps) == 1)
        maps = look[f"{other}_query"].weight.mT @ key, self.fuse[side].weight[:, :dim], self.fuse[other].weight[:, dim:]
        asked, own, sent, *again = loops.maps(real, (*maps, *again))
        return Mapped(where, real, asked, again, own, sent)

    def _meet(self, images: ImageCode, texts: TextCode, fused: bool) -> tuple[Tensor, Tensor]:
        regions, words = self._fragments(images, texts)
        seen = self._receive("regions", regions, words.beside(), fused)  # [text, image, …]
        read = self._receive("words", words, regions.beside(), fused)  # [image, text, …]
        return seen.pooled.transpose(0, 1), read.pooled

    def _receive(self, side: str, own: Fragments, other: Fragments, fused: bool) -> Received:
        """One side hears of the other, takes in what agrees with it, and is pooled."""
        config: CampConfig = self.config
        with full_precision(own.vectors):
            looked, weights = self._look(own, other)  # P, R
            length = found_length(weights, products(other.vectors, other.vectors)) + EPSILON  # |v^|² = r (T Tᵀ) rᵀ
            match = (weights * products(own.vectors, other.vectors)).sum(dim=-1)  # v · v^ = r (T v)
            cosine = match / length / (torch.linalg.vector_norm(own.vectors, dim=-1) + EPSILON)
            if not fused:
                return Received(looked, cosine, None, self._told(side, own, other, weights))
            if config.rounds == 2:  # v^ ← v^ / |v^|
                weights, match = weights / length[..., None], match / length
            gate = match.sigmoid() if config.gate else torch.ones_like(match)  # g = σ(v · v^)
        taken = self._fused(side, own, other, weights, gate[..., None])  # v' = taken + v
        share = self.pool[side](taken, own.mask, own.hidden) if config.heads else own.mean  # ω
        with full_precision(taken):
            pooled = (summed(share.to(taken.dtype), taken) + summed(share, own.vectors))[..., 0, :]  # p = Σ ω v'
        return Received(looked, cosine, gate if config.gate else None, unit(pooled) if config.rounds == 2 else pooled)

    def _look(self, own: Fragments, other: Fragments) -> tuple[Tensor, Tensor]:
        """How much each fragment takes from each of the other side: P at first, R in the end."""
        scale = self.config.dim**-0.5
        first = masked_softmax(scale * products(own.query, other.key), other.mask[..., None, :])  # V~ = P T
        if other.query_again is None or other.key_again is None:
            return first, first
        between = products(other.query_again, other.key_again)  # (A_q T)(A_k T)ᵀ
        again = products(summed(first, between), first)  # (A_q V~)(A_k V~)ᵀ = P (A_q T)(A_k T)ᵀ Pᵀ
        return first, summed(masked_softmax(scale * again, own.mask[..., None, :]), first)  # V^ = R T

    def _fused(self, side: str, own: Fragments, other: Fragments, weights: Tensor, gate: Tensor) -> Tensor:
        """ReLU(F (g [v ; v^])) = ReLU(g F_own v + g r (F_sent T))."""
        assert own.own is not None
        assert other.sent is not None
        message = summed(gate * weights, other.sent)
        fused = torch.addcmul(message, gate.to(message.dtype), own.own.to(message.dtype))
        bias = self.fuse[side].bias  # the older model has one
        return (fused if bias is None else fused + bias.to(fused.dtype)).relu_()

    def _told(self, side: str, own: Fragments, other: Fragments, weights: Tensor) -> Tensor:
        """The pre-training: messages pooled as they come, Σ ω v^."""
        learned = self.config.heads and not self.config.fusion
        share = self.pool[side](summed(weights, other.vectors), own.mask) if learned else own.mean
        return unit(summed(summed(share, weights), other.vectors)[..., 0, :])

    def _judged(self, seen: Float[Tensor, "*pair dim"], read: Float[Tensor, "*pair dim"], fused: bool) -> Tensor:
        """S = σ(w · ReLU(M [p_v ; p_t] + b) + c); in the pre-training their cosine."""
        with full_precision(seen):
            if not fused:
                return (seen * read).sum(dim=-1)
            logit: Tensor = self.judge(torch.cat([seen, read], dim=-1))
            return logit[..., 0].sigmoid()

    def _mapped(self, images: ImageCode, texts: TextCode) -> tuple[ImageCode, TextCode]:
        """Codes whose vectors have beside them all that they are mapped to before they meet the other side."""
        regions, words = self._map("regions", "words", images.regions), self._map("words", "regions", texts.words)
        return replace(images, regions=regions), replace(texts, words=words)

    def _map(self, side: str, other: str, vectors: Float[Tensor, "item fragment dim"]) -> Tensor:
        found = [vectors, *(self.look[f"{side}_{name}"](vectors) for name in self.maps)]
        if self.config.fusion:  # F [v ; v^] is one map of the fragment itself and one of what the other side sends
            own, sent = self.fuse[side].weight[:, : self.config.dim], self.fuse[other].weight[:, self.config.dim :]
            hidden = [self.pool[side].hidden.weight] if self.config.heads else []
            found += [F.linear(vectors, weight) for weight in (own, sent, *hidden)]
        return torch.cat(found, dim=-1)

    def _fragments(self, images: ImageCode, texts: TextCode) -> tuple[Fragments, Fragments]:
        words, mask, counts = texts.words, texts.mask, texts.mask.to(texts.words.dtype)
        if self.config.text_length and not self.config.heads:  # empty places all find the same: one stands for them
            empty = (self.config.text_length - counts.sum(dim=-1, keepdim=True)).clamp(min=0)
            words, mask, counts = F.pad(words, (0, 0, 0, 1)), F.pad(mask, (0, 1)), torch.cat([counts, empty], dim=-1)
        return self._split(images.regions, images.mask, images.mask.to(counts.dtype)), self._split(words, mask, counts)

    def _split(self, mapped: Tensor, mask: Bool[Tensor, "item fragment"], counts: Tensor) -> Fragments:
        """What `_map` put side by side."""
        names = ["vectors", *self.maps]
        if self.config.fusion:
            names += ["own", "sent", "hidden"] if self.config.heads else ["own", "sent"]
        found = dict(zip(names, mapped.chunk(len(names), dim=-1), strict=True))
        mean = counts / counts.sum(dim=-1, keepdim=True).clamp(min=1)
        return Fragments(**{"key": found["query"], **found}, mask=mask, mean=mean[:, None])


def _slices(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


class Fragments(NamedTuple):
    """One side as it meets the other: its vectors and all that they are mapped to."""

    vectors: Float[Tensor, "*item fragment dim"]
    query: Float[Tensor, "*item fragment dim"]
    key: Float[Tensor, "*item fragment dim"]
    mask: Bool[Tensor, "*item fragment"]
    mean: Float[Tensor, "*item 1 fragment"]  # the shares of a plain mean
    query_again: Float[Tensor, "*item fragment dim"] | None = None
    key_again: Float[Tensor, "*item fragment dim"] | None = None
    own: Float[Tensor, "*item fragment dim"] | None = None  # F_own v
    sent: Float[Tensor, "*item fragment dim"] | None = None  # F_sent v, for the other side
    hidden: Float[Tensor, "*item fragment dim"] | None = None  # L₁ v

    def beside(self) -> Fragments:
        """With an axis for all items of the other side."""
        return Fragments(*(None if value is None else value[:, None] for value in self))  # type: ignore[arg-type]


class Received(NamedTuple):
    """What the fragments of one side found in the other, pair by pair, and what became of them."""

    looked: Float[Tensor, "*pair fragment other"]  # the weights of the first look
    cosine: Float[Tensor, "*pair fragment"]  # of each with its message
    gate: Float[Tensor, "*pair fragment"] | None
    pooled: Float[Tensor, "*pair dim"]
