"""Align2Ground: Weakly Supervised Phrase Grounding Guided by Image-Caption Alignment (Datta, Sikka, Roy, Ahuja, Parikh,
Divakaran; ICCV 2019).

Ground every phrase of a caption first, make one vector of the picture from the grounded regions alone, and match that
with the caption. Nobody says which region is right: only that a caption's own picture must rank first. For regions x_j,
phrases p_k and the caption's state c:

    s_jk  = cos(W_lᵀ x_j, p_k)                                             local matching                (1)
    α_jk  = exp(λ s_jk) / Σ_j exp(λ s_jk),   x_k = Σ_j α_jk x_j            or the best region, or the best few (2)
    f     = mean over k of W₁ [W₀ x_k + b₀]₊ + b₁                          local aggregation, in any order;
            or the last state of a GRU over these, in the order of the phrases                           (3)
    S     = cos(f, W_g c + b_g)                                            global matching               (4)

The baseline that (2–4) must beat pools local scores: S = Σ_k max_j s_jk (`score=pooled`). Every picture is encoded anew
for every caption. Since α sums to one, W₀ is applied once to every region, and for the mean W₁ once to every pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.parsing.parser import shared_parser
from saccade.models.base.matcher import LOCATING_SHARPNESS, EncoderConfig, FragmentMatcher, Fragments
from saccade.models.base.model import Model, register
from saccade.nn.attention import masked_softmax, products, summed
from saccade.nn.encode import (
    Standardise,
    StatePool,
    WordEncoder,
    at_least_float32,
    dropout_layer,
    full_precision,
    last_state,
    pooled_state,
)
from saccade.nn.recurrent import SentenceGru
from saccade.nn.transformer import TransformerWords

SHORTEST = 1e-12  # a shorter vector has no direction


@dataclass(frozen=True)
class Align2GroundConfig(EncoderConfig):
    """`dim` is the width of the joint space of (4)."""

    bidirectional: bool = False
    local: Literal["attend", "max", "topk"] = "attend"  # (2): all regions, the best, the best few
    sharpness: float = 1.0  # λ, one over a temperature: the paper's softmax of bare cosines is flat, e² apart at most
    top: int = 3  # regions that topk attends to
    aggregate: Literal["mean", "gru"] = "mean"  # (3)
    hidden_dim: int = 1024  # of its two layers
    score: Literal["global", "pooled"] = "global"  # pooled: the best regions' scores, summed over phrases
    phrase: Literal["words", "states"] = "words"  # a phrase is the mean of its word vectors, or of its words' states
    state_dim: int = 1024  # of the network that reads the caption
    text_pool: StatePool = "last"  # the caption's state
    parser: str = "rules"  # where captions come without phrases: rules, spacy, file:PATH
    budget_mb: int = 256  # bounds the memory of all-pairs scoring

    def __post_init__(self) -> None:
        check_ranges(self, "sharpness", "more than zero")
        check_ranges(self, "top", "at least 1")
        if self.word_encoder == "minilm" and self.phrase == "words":
            raise SaccadeError("word_encoder=minilm reads words in their sentence: give phrase=states")


def direction(vectors: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
    return F.normalize(at_least_float32(vectors), dim=-1, eps=SHORTEST)


@dataclass(frozen=True)
class Rois(Fragments):
    """Regions in the space of phrases, and what each adds to (3)."""

    inner: Float[Tensor, "image region hidden_dim"] | None = None  # W₀ x


@dataclass(frozen=True)
class Phrases(Fragments):
    """Phrases, and the caption in the joint space; of every word, the phrase that it belongs to."""

    vectors: Float[Tensor, "text phrase dim"]
    mask: Bool[Tensor, "text phrase"]
    of_word: Float[Tensor, "text word dim"]
    word_mask: Bool[Tensor, "text word"]
    caption: Float[Tensor, "text joint_dim"] | None = None

    def trimmed(self, longest: int) -> Phrases:
        return replace(self, vectors=self.vectors[:, :longest], mask=self.mask[:, :longest])


@register(
    "align2ground",
    task="matching",
    title="Align2Ground: Weakly Supervised Phrase Grounding Guided by Image-Caption Alignment",
    venue="Datta et al., ICCV 2019",
)
class Align2Ground(FragmentMatcher):
    Config = Align2GroundConfig
    whole_phrases = True
    intended_use = (
        "To find what phrases mean in a picture, and to rank pictures by sentences, learned from captions alone."
    )

    def __init__(self, config: Align2GroundConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        Model.__init__(self, config, vocabulary, extractor)  # with encoders of its own
        words, states = len(vocabulary), config.state_dim
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.dropout = dropout_layer(config.dropout)
        self.words: WordEncoder | TransformerWords
        if config.word_encoder == "minilm":
            self.words = TransformerWords(words, states, False, config.dropout)
        else:
            gru = config.layers, config.bidirectional
            self.words = WordEncoder(words, config.word_dim, states, *gru, False, config.dropout)
        self.local = nn.Linear(config.region_dim, config.word_dim if config.phrase == "words" else states, bias=False)
        if config.score == "global":
            self.inner = nn.Linear(config.region_dim, config.hidden_dim)  # W₀
            self.outer = nn.Linear(config.hidden_dim, config.dim)  # W₁
            self.ordered = SentenceGru(config.dim, config.dim) if config.aggregate == "gru" else None
            self.caption = nn.Linear(states, config.dim)  # W_g
        elif config.phrase == "words":
            self.words.requires_grad_(False).embed.requires_grad_()  # nobody asks for the states

    def read(self, texts: Sequence[str]) -> TextBatch:
        """With the phrases that the parser finds; <start> has place 0."""
        parses = shared_parser(self.config.parser).parse(texts)
        spans = tuple(tuple((thing.start + 1, thing.end + 1) for thing in parse.objects) for parse in parses)
        return replace(super().read(texts), phrases=spans)

    def encode_images(self, images: RegionBatch) -> ImageCode:
        """x: features as they came."""
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        return ImageCode(self.dropout(at_least_float32(features)) * images.mask[..., None], images.mask)

    def encode_texts(self, texts: TextBatch) -> TextCode:
        """What phrases are made of, and c."""
        states: Tensor = self.words(texts) * texts.mask[..., None]
        caption = pooled_state(states, texts.lengths, self.config.text_pool)
        if self.config.phrase == "words":
            assert isinstance(self.words, WordEncoder)
            states = at_least_float32(self.words.dropout(self.words.embed(texts.tokens))) * texts.mask[..., None]
        return TextCode(states, texts.mask, caption, phrases=texts.phrase_words().to(states))

    def prepare(self, images: ImageCode, texts: TextCode) -> tuple[Rois, Phrases]:
        assert texts.phrases is not None
        vectors = self.phrase_vectors(texts.words, texts.phrases)
        rois = Rois(direction(self.local(images.regions)), images.mask)
        own = phrase_of_word(direction(texts.words), vectors, texts.phrases)
        phrases = Phrases(vectors, texts.phrases.any(dim=2), own, texts.mask)
        if self.config.score == "pooled":
            return rois, phrases
        assert texts.pooled is not None
        inner = at_least_float32(F.linear(images.regions, self.inner.weight))
        return replace(rois, inner=inner), replace(phrases, caption=direction(self.caption(texts.pooled)))

    @staticmethod
    def phrase_vectors(
        words: Float[Tensor, "text word dim"], phrases: Float[Tensor, "text phrase word"]
    ) -> Float[Tensor, "text phrase dim"]:
        """p, of length one."""
        return direction(summed(phrases / phrases.sum(dim=2, keepdim=True).clamp(min=1), words))

    def choose(
        self, scores: Float[Tensor, "*pair phrase region"], mask: Bool[Tensor, "*#pair region"]
    ) -> Float[Tensor, "*pair phrase region"]:
        """α (2). The best region alone would teach s nothing: it has the gradient of the softmax over all."""
        real = mask[..., None, :].expand_as(scores)
        every = masked_softmax(self.config.sharpness * scores, real) * real
        if self.config.local == "attend":
            return every
        kept = min(1 if self.config.local == "max" else int(self.config.top), scores.shape[-1])
        best = scores.masked_fill(~real, -torch.inf).topk(kept, dim=-1).indices
        real = real & torch.zeros_like(real).scatter(-1, best, True)
        if self.config.local == "max":
            return real + (every - every.detach())
        return masked_softmax(self.config.sharpness * scores, real) * real

    def encoded(
        self, weights: Float[Tensor, "*pair phrase region"], inner: Float[Tensor, "*#pair region hidden_dim"]
    ) -> Float[Tensor, "*pair phrase hidden_dim"]:
        """[W₀ x_k + b₀]₊ of every phrase."""
        return (summed(weights, inner) + self.inner.bias).relu()

    def aggregated(
        self, hidden: Float[Tensor, "*pair phrase hidden_dim"], mask: Bool[Tensor, "*#pair phrase"]
    ) -> Float[Tensor, "*pair dim"]:
        """f (3)."""
        mask = mask.expand(hidden.shape[:-1])
        if self.ordered is None:
            count = mask.sum(dim=-1, keepdim=True).clamp(min=1)
            return at_least_float32(self.outer((hidden * mask[..., None]).sum(dim=-2) / count))
        steps = self.outer(hidden).flatten(0, -3)
        lengths = mask.flatten(0, -2).sum(dim=1)
        return last_state(self.ordered(steps, lengths), lengths).view(*hidden.shape[:-2], self.config.dim)

    def match(
        self, rois: Rois, phrases: Phrases, each: bool
    ) -> tuple[Float[Tensor, "*pair phrase region"], Float[Tensor, "*pair"]]:
        """s (1) and S (4): of every pair, or with `each` of picture p with text p."""
        place = (slice(None),) if each else (slice(None), None)
        mask, among = rois.mask[place], phrases.mask if each else phrases.mask[None]
        scores = products(phrases.vectors if each else phrases.vectors[None], rois.vectors[place])
        if rois.inner is None:
            best = scores.masked_fill(~mask[..., None, :], torch.finfo(scores.dtype).min).amax(dim=-1)
            return scores, (best * (among & mask.any(dim=-1, keepdim=True))).sum(dim=-1)
        assert phrases.caption is not None
        hidden = self.encoded(self.choose(scores, mask), rois.inner[place])
        return scores, (direction(self.aggregated(hidden, among)) * phrases.caption).sum(dim=-1)

    def pair(self, images: Rois, texts: Phrases) -> Float[Tensor, "image text"]:
        return self.match(images, texts, each=False)[1]

    def alignment(self, images: Rois, texts: Phrases) -> Alignment:
        """Every word attends as its phrase does; a word of no phrase, by itself."""
        scores = products(texts.of_word, images.vectors)
        weights = self.choose(scores, images.mask) * texts.word_mask[..., None]
        best = scores.masked_fill(~images.mask[:, None], -1.0).amax(dim=2) * texts.word_mask
        score = self.match(images, texts, each=True)[1]
        return Alignment(weights, score, texts.word_mask, images.mask, word_score=best)

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        """`align`, with weights that are sharp enough to be seen."""
        with full_precision(images.regions):
            rois, phrases = self.prepare(images, texts)
            scores = LOCATING_SHARPNESS * products(phrases.of_word, rois.vectors)
            weights = masked_softmax(scores, images.mask[:, None]) * texts.mask[..., None]
            return replace(self.alignment(rois, phrases), weights=weights)

    def heat(
        self, images: ImageCode, texts: TextCode, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase region"]:
        """s of any phrases, whose best region is what they mean."""
        with full_precision(images.regions):
            return products(self.phrase_vectors(texts.words, phrases), direction(self.local(images.regions)))


def phrase_of_word(
    words: Float[Tensor, "text word dim"],
    vectors: Float[Tensor, "text phrase dim"],
    phrases: Float[Tensor, "text phrase word"],
) -> Float[Tensor, "text word dim"]:
    """The phrase that each word belongs to, the last of several; the word itself where it belongs to none."""
    order = torch.arange(1, phrases.shape[1] + 1, device=phrases.device)
    latest = (phrases * order[:, None]).amax(dim=1).long()  # 0: none
    owner = (latest - 1).clamp(min=0)[..., None].expand(-1, -1, words.shape[2])
    return torch.where(latest[..., None] > 0, vectors.gather(1, owner), words)
