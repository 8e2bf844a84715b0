"""CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval (Wang, Liu, Li, Sheng, Yan, Wang, Shao; ICCV
2019).

SCAN compares each word with what it attended to. Here regions and words are *fused* with what they attended to, as far
as a gate lets it in, and the pair is scored from the fused vectors: they differ with every sentence a picture meets.
For regions V that receive messages from words T, with att(Q, K, X) = softmax(Q Kᵀ / √D) X; words receive likewise:

    V~   = att(W_q V, W_k T, T)                              messages of the words                     (1)
    V^   = att(A_q V~, A_k V~, V~),    v^_i ← v^_i / |v^_i|  messages attend to each other             (2)
    g_i  = σ(v_i · v^_i)                                     the gate of each region                   (3)
    v'_i = ReLU(F (g_i [v_i ; v^_i])) + v_i                  fusion                                    (4)
    p_v  = Σ_i ω_i v'_i,  ω = softmax_i L₂ ReLU(L₁ v'_i)     pooling, the mean of four heads           (5)
    S    = σ(w · ReLU(M [p_v ; p_t] + b) + c)                with p_v, p_t of length one               (6)

A message is a weighted sum of the other side's vectors, so linear maps of messages are computed from those vectors,
once per item, and only weights are computed per pair. With P the weights of (1):

    (A_q V~)(A_k V~)ᵀ = P [(A_q T)(A_k T)ᵀ] Pᵀ,              so that V^ = R T, R = softmax(· / √D) P   (2)
    v · v^ = r (T v),    |v^|² = r (T Tᵀ) rᵀ                                                           (2–3)
    F (g [v ; v^]) = g F_own v + g r (F_sent T),    L₁ v' = L₁ ReLU(·) + L₁ v                          (4–5)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.matcher import FragmentConfig, FragmentMatcher, Fragments
from saccade.models.base.model import register
from saccade.nn.attention import attended_length, masked_softmax, products, summed
from saccade.nn.encode import FullPrecision, unit
from saccade.nn.losses import triplet_loss
from saccade.ops import EPSILON
from saccade.ops.all_pairs import all_pairs

Side = Literal["regions", "words"]


@dataclass(frozen=True)
class CampConfig(FragmentConfig):
    """The full model of the official code."""

    unit_regions: bool = False
    unit_words: bool = False
    rounds: Literal[1, 2] = 2  # of attention; 1: the older model, with one map for queries and keys
    fusion: bool = True  # False: the cosine of the pooled messages, for pre-training
    gate: bool = True  # False: the ablation without gates
    heads: int = 4  # of the attention that pools fragments; 0: their mean
    text_length: int = 0  # the mean over words counts padding up to this length, as officially; 0: real words only
    message_loss: float = 0.0  # weight of the pre-training loss, added to train in one run
    score: Literal["probability", "cosine"] = "probability"  # (6); cosine: p_v · p_t instead, not in the paper
    initialiser: Literal["released", "pytorch"] = "released"  # of W_k, F and (6): ±√(3 / dim), with biases of 0; or
    # PyTorch's own

    def __post_init__(self) -> None:
        for name in ("heads", "text_length", "message_loss"):
            if getattr(self, name) < 0:
                raise SaccadeError(f"{name} must be zero or more, not {getattr(self, name)}")


@dataclass(frozen=True)
class CampFragments(Fragments):
    """One side with all its linear maps."""

    share: Float[Tensor, "*item part"]  # of each in a plain mean
    query: Float[Tensor, "*item part dim"]
    key: Float[Tensor, "*item part dim"]
    second_query: Float[Tensor, "*item part dim"] | None = None
    second_key: Float[Tensor, "*item part dim"] | None = None
    own: Float[Tensor, "*item part dim"] | None = None  # F_own v
    sent: Float[Tensor, "*item part dim"] | None = None  # F_sent v, for the other side
    hidden: Float[Tensor, "*item part dim"] | None = None  # L₁ v

    def expand_pairs(self) -> CampFragments:
        """With an axis for all items of the other side."""
        return self.map(lambda tensor: tensor[:, None])


class Received(NamedTuple):
    """What one side receives from the other, for each pair."""

    weights: Float[Tensor, "*pair part other"]  # P
    cosine: Float[Tensor, "*pair part"]  # of each fragment with its message
    gate: Float[Tensor, "*pair part"] | None
    pooled: Float[Tensor, "*pair dim"]


@register(
    "camp",
    task="matching",
    title="CAMP: Cross-Modal Adaptive Message Passing for Text-Image Retrieval",
    venue="Wang et al., ICCV 2019",
)
class Camp(FragmentMatcher):
    Config = CampConfig
    keep_in_float32 = ("look", "pool", "fuse", "judge")

    def __init__(self, config: CampConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # the encoders, as SCAN's
        dim, sides = config.dim, ("regions", "words")
        maps = ("query", "key", "query_again", "key_again") if config.rounds == 2 else ("query",)
        names = [f"{side}_{name}" for side in sides for name in maps]
        self.look = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in names})  # W_q, W_k, A_q, A_k
        self.pool: Mapping[str, HeadPool] = nn.ModuleDict(  # type: ignore[assignment]
            {side: HeadPool(dim, config.heads) for side in sides if config.heads}  # L₁, L₂
        )
        if config.fusion:
            self.fuse: Mapping[str, nn.Linear] = nn.ModuleDict(  # type: ignore[assignment]
                {side: nn.Linear(2 * dim, dim, bias=config.rounds == 1) for side in sides}  # F
            )
            if config.score == "probability":
                self.judge = FullPrecision(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))
        if config.initialiser == "released":
            self._begin_as_released()

    def _begin_as_released(self) -> None:
        key = "key" if self.config.rounds == 2 else "query"  # the older model has one map for both
        layers: list[nn.Module] = [layer for name, layer in self.look.items() if name.endswith(f"_{key}")]
        if self.config.fusion:
            layers += [*self.fuse.values(), *(self.judge if self.config.score == "probability" else ())]
        for layer in (layer for layer in layers if isinstance(layer, nn.Linear)):
            nn.init.uniform_(layer.weight, -((3 / self.config.dim) ** 0.5), (3 / self.config.dim) ** 0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[CampFragments, CampFragments]:
        words, mask, counts = texts.words, texts.mask, texts.mask.to(texts.words.dtype)
        if self._counts_padding:  # all padding attends alike: one place stands for it, before the words
            empty = (self.config.text_length - counts.sum(dim=-1, keepdim=True)).clamp(min=0)
            words, mask, counts = F.pad(words, (0, 0, 1, 0)), F.pad(mask, (1, 0)), torch.cat([empty, counts], dim=-1)
        regions = self._mapped("regions", "words", images.regions, images.mask, images.mask.to(counts.dtype))
        return regions, self._mapped("words", "regions", words, mask, counts)

    def _mapped(self, side: Side, other: Side, vectors: Tensor, mask: Tensor, counts: Tensor) -> CampFragments:
        maps = [layer for name, layer in self.look.items() if name.startswith(side)]
        query, *others = (layer(vectors) for layer in maps)
        share = counts / counts.sum(dim=-1, keepdim=True).clamp(min=1)
        mapped = CampFragments(vectors, mask, share, query, *others or [query])
        if not self.config.fusion:
            return mapped
        own, sent = self.fuse[side].weight[:, : self.config.dim], self.fuse[other].weight[:, self.config.dim :]
        return replace(
            mapped,
            own=F.linear(vectors, own),
            sent=F.linear(vectors, sent),
            hidden=F.linear(vectors, self.pool[side].hidden.weight) if self.config.heads else None,
        )

    def pair(self, images: CampFragments, texts: CampFragments) -> Float[Tensor, "image text"]:
        return self._score(*self._pooled(images, texts, self.config.fusion), self.config.fusion)

    def pooled(self, images: ImageCode, texts: TextCode) -> tuple[Tensor, Tensor]:
        """p_v of each picture beside each text, and p_t of each text beside each picture: [image text dim]."""
        return self._pooled(*self.prepare(images, texts), self.config.fusion)

    def alignment(self, images: CampFragments, texts: CampFragments) -> Alignment:
        fusion, first = self.config.fusion, int(self._counts_padding)
        image = self._receive("regions", images, texts, fusion)
        text, mask = self._receive("words", texts, images, fusion), texts.mask[:, first:]
        return Alignment(
            text.weights[:, first:] * mask[:, :, None],
            self._score(image.pooled, text.pooled, fusion),
            mask,
            images.mask,
            word_score=text.cosine[:, first:] * mask,
            region_score=image.cosine * images.mask,
            word_gate=None if text.gate is None else text.gate[:, first:] * mask,
            region_gate=None if image.gate is None else image.gate * images.mask,
        )

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        return self.align(images, texts)  # P, for which words do not compete

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """The paper's first training stage as a further loss: (6) learns nothing before attention does."""
        if not self.config.message_loss:
            return {}
        sides = self.prepare(images, self.encode_texts(texts))
        cosines = all_pairs(self._message_cosines, *sides, self.budget)
        loss = triplet_loss(cosines, negatives="all", owner=owner) / max(1, len(owner))
        return {"message_loss": self.config.message_loss * loss}

    def _message_cosines(self, images: CampFragments, texts: CampFragments) -> Float[Tensor, "image text"]:
        return self._score(*self._pooled(images, texts, fusion=False), fusion=False)

    def _pooled(self, images: CampFragments, texts: CampFragments, fusion: bool) -> tuple[Tensor, Tensor]:
        image = self._receive("regions", images, texts.expand_pairs(), fusion)  # [text, image, …]
        text = self._receive("words", texts, images.expand_pairs(), fusion)  # [image, text, …]
        return image.pooled.transpose(0, 1), text.pooled

    def _receive(self, side: Side, own: CampFragments, other: CampFragments, fusion: bool) -> Received:
        """(1–5) for one side."""
        config: CampConfig = self.config
        first, weights = self._attend(own, other)  # P, R
        length = attended_length(weights, products(other.vectors, other.vectors)) + EPSILON  # |v^|
        match = (weights * products(own.vectors, other.vectors)).sum(dim=-1)  # v · v^
        cosine = match / length / (torch.linalg.vector_norm(own.vectors, dim=-1) + EPSILON)
        if not fusion:
            return Received(first, cosine, None, self._pooled_messages(side, own, other, weights))
        if config.rounds == 2:  # v^ ← v^ / |v^|
            weights, match = weights / length[..., None], match / length
        gate = match.sigmoid() if config.gate else torch.ones_like(match)  # (3)
        fused = self._fused(side, own, other, weights, gate[..., None])  # (4), without + v
        share = self.pool[side](fused, own.mask, own.hidden) if config.heads else own.share[..., None, :]
        pooled = (summed(share, fused) + summed(share, own.vectors))[..., 0, :]  # (5)
        pooled = unit(pooled) if config.rounds == 2 or config.score == "cosine" else pooled
        return Received(first, cosine, gate if config.gate else None, pooled)

    def _attend(self, own: CampFragments, other: CampFragments) -> tuple[Tensor, Tensor]:
        """(1–2): the weights P of the first attention and R of both."""
        scale = self.config.dim**-0.5
        first = masked_softmax(scale * products(own.query, other.key), other.mask[..., None, :])  # (1)
        if other.second_query is None or other.second_key is None:
            return first, first
        between = products(other.second_query, other.second_key)  # (A_q T)(A_k T)ᵀ
        again = products(summed(first, between), first)  # P (A_q T)(A_k T)ᵀ Pᵀ
        return first, summed(masked_softmax(scale * again, own.mask[..., None, :]), first)  # (2)

    def _fused(self, side: Side, own: CampFragments, other: CampFragments, weights: Tensor, gate: Tensor) -> Tensor:
        """ReLU(g F_own v + g r (F_sent T))."""
        assert own.own is not None
        assert other.sent is not None
        fused = torch.addcmul(summed(gate * weights, other.sent), gate.type_as(own.own), own.own)
        bias = self.fuse[side].bias  # the older model has one
        return (fused if bias is None else fused + bias.type_as(fused)).relu_()

    def _pooled_messages(self, side: Side, own: CampFragments, other: CampFragments, weights: Tensor) -> Tensor:
        """Of the pre-training: Σ ω v^."""
        learned = self.config.heads and not self.config.fusion
        share = self.pool[side](summed(weights, other.vectors), own.mask) if learned else own.share[..., None, :]
        return unit(summed(summed(share, weights), other.vectors)[..., 0, :])

    def _score(self, image: Float[Tensor, "*pair dim"], text: Float[Tensor, "*pair dim"], fusion: bool) -> Tensor:
        """(6); in the pre-training, or if so chosen, the cosine."""
        if not fusion or self.config.score == "cosine":
            return (image * text).sum(dim=-1)
        logit: Tensor = self.judge(torch.cat([image, text], dim=-1))
        return logit[..., 0].sigmoid()

    @property
    def _counts_padding(self) -> bool:
        return bool(self.config.text_length and not self.config.heads)


class HeadPool(nn.Module):
    """ω = softmax(L₂ ReLU(L₁ x)) over the parts, the mean of several heads.

    Where x is a sum, L₁ of the summand that all pairs share may be given. L₂ has no bias: it changes no softmax.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, dim)
        self.heads = nn.Linear(dim, heads, bias=False)

    def forward(
        self,
        vectors: Float[Tensor, "*pair part dim"],
        mask: Bool[Tensor, "*#pair part"],
        known: Float[Tensor, "*#pair part dim"] | None = None,
    ) -> Float[Tensor, "*pair 1 part"]:
        hidden = self.hidden(vectors)
        if known is not None:
            hidden += known
        scores = self.heads(hidden.relu_()).mT  # in place: these are the largest tensors of all
        return masked_softmax(scores, mask[..., None, :]).mean(dim=-2, keepdim=True)
