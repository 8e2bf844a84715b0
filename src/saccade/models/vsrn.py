"""VSRN: Visual Semantic Reasoning for Image-Text Matching (Li, Zhang, Li, Li, Fu; ICCV 2019).

One vector per picture, but a considered one: regions first take from each other over a learned affinity, then a GRU
reads them into one memory of the scene; and from the same regions a caption must be written. Texts and pictures meet
only as whole vectors, so an index can hold them.

    v_i  = W x_i + b                                                                        (1)
    R    = θ(V) φ(V)ᵀ / k,   k the number of regions           region relationships         (2)
    V    ← V + BN(W₀ R g(V))                                   four times                   (3)
    m    = the last state of a GRU over v₁ … v_k               global reasoning             (4–7)
    L    = L_M + L_G                                                                        (8)
    L_M  = Σ [m + S(I, T') − S(I, T)]₊ + [m + S(I', T) − S(I, T)]₊,   hardest negatives     (9)
    L_G  = −Σ_s log p(y_s | y_0 … y_{s−1}, V)                                               (10)

S(I, T) is the cosine of m and of the last state of the text's GRU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import END, Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.matcher import EncoderConfig, Matcher
from saccade.models.base.registry import register
from saccade.nn import (
    MaskedBatchNorm,
    Measure,
    RegionEncoder,
    SentenceGru,
    StatePool,
    WordEncoder,
    at_least_float32,
    attended,
    dropout_layer,
    last_state,
    masked_softmax,
    mean_state,
    nearest_regions,
    pooled_state,
    unit,
    whole_similarity,
)

Affinity = Literal["mean", "softmax"]
RegionNorm = Literal["channels", "regions", "none"]  # each channel over a picture's regions; each region; neither


@dataclass(frozen=True)
class VsrnConfig(EncoderConfig):
    """The official settings for COCO; for Flickr30k `norm_before="none"` and `final_norm=True`."""

    dim: int = 2048  # the common space
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
        return whole_similarity(images, texts, self.config.measure, self.budget)

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


class RelationBlock(nn.Module):
    """R = θ(X) φ(X)ᵀ / k, k the number of regions; X ← X + BN(W₀ R g(X)), the identity before it has learned.

    With `affinity="softmax"` the rows of R are distributions instead. A block is cubic in X: keep X small.
    """

    def __init__(self, dim: int, affinity: Affinity = "mean") -> None:
        super().__init__()
        self.affinity = affinity
        self.taking, self.giving = nn.Linear(dim, dim), nn.Linear(dim, dim)  # θ, φ
        self.message, self.mix = nn.Linear(dim, dim), nn.Linear(dim, dim)  # g, W₀
        self.norm = MaskedBatchNorm(dim)
        nn.init.zeros_(self.norm.weight)

    def links(
        self, regions: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"]
    ) -> Float[Tensor, "image region region"]:
        """R: how much the first region takes from the second; nothing is taken from padding, nor by it."""
        scores = at_least_float32(self.taking(regions) @ self.giving(regions).transpose(1, 2))
        if self.affinity == "softmax":
            scores = masked_softmax(scores, mask[:, None])
        else:
            scores = scores / mask.sum(dim=1).clamp(min=1)[:, None, None]
        return scores * (mask[:, :, None] & mask[:, None])

    def forward(
        self, regions: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"]
    ) -> tuple[Float[Tensor, "image region dim"], Float[Tensor, "image region region"]]:
        """The regions with what they took, and who took from whom."""
        links = self.links(regions, mask)
        taken = at_least_float32(self.mix(links @ self.message(regions)))
        return regions + self.norm(taken, mask), links


class AdditiveAttention(nn.Module):
    """e_r = w · tanh(W [o_r ; h] + b); the context is Σ_r softmax(e)_r o_r, over what is there.

    What `nn.AdditiveAttention` computes, with one matrix W as the official weights and their gradient norms have it.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.match = nn.Linear(2 * dim, dim)
        self.weigh = nn.Linear(dim, 1, bias=False)

    def keys(self, values: Float[Tensor, "text region dim"]) -> Float[Tensor, "text region dim"]:
        """The part of W [o_r ; h] + b that is the same at every step."""
        return F.linear(values, self.match.weight[:, : values.shape[2]], self.match.bias)

    def forward(
        self,
        state: Float[Tensor, "text dim"],
        values: Float[Tensor, "text region dim"],
        keys: Float[Tensor, "text region dim"],
        mask: Bool[Tensor, "text region"],
    ) -> Float[Tensor, "text dim"]:
        asked = F.linear(state, self.match.weight[:, values.shape[2] :])
        scores: Tensor = self.weigh(torch.tanh(keys + asked[:, None]))[:, :, 0]
        weights = masked_softmax(scores, mask)
        return attended(weights, values)


class CaptionGenerator(nn.Module):
    """p(y_{s+1} | y_0 … y_s, V), eq. 10: one GRU reads the regions, another writes and attends to what was read.

    After S2VT. Describing a picture is a second lesson beside matching it; teacher forcing only.
    """

    def __init__(
        self,
        vocabulary: int,
        region_dim: int,
        dim: int = 512,
        word_dim: int = 300,
        dropout: float = 0.2,
        bidirectional: bool = False,  # of the reading GRU
    ) -> None:
        super().__init__()
        wide = 2 * dim if bidirectional else dim
        self.dropout = dropout_layer(dropout)
        self.project = nn.Linear(region_dim, dim)
        self.reader = SentenceGru(dim, dim, bidirectional=bidirectional)
        self.embed = nn.Embedding(vocabulary, word_dim)
        self.attention = AdditiveAttention(wide)
        self.writer = nn.GRUCell(word_dim + wide, wide)
        self.out = nn.Linear(wide, vocabulary)
        nn.init.xavier_normal_(self.project.weight)
        nn.init.xavier_normal_(self.out.weight)

    def read(
        self, regions: Float[Tensor, "image region in"], mask: Bool[Tensor, "image region"]
    ) -> tuple[Float[Tensor, "image region dim"], Float[Tensor, "image dim"]]:
        """The reader's states over the regions, and its last one, from which writing starts."""
        counts = mask.sum(dim=1)
        states = at_least_float32(self.reader(self.dropout(self.project(regions)), counts))
        if not self.reader.bidirectional:
            return states, last_state(states, counts)
        onward, back = states.chunk(2, dim=-1)
        return states, torch.cat([last_state(onward, counts), back[:, 0]], dim=-1)

    def forward(
        self,
        values: Float[Tensor, "text region dim"],
        state: Float[Tensor, "text dim"],
        mask: Bool[Tensor, "text region"],
        words: Int[Tensor, "text step"],
    ) -> Float[Tensor, "text step vocabulary"]:
        """The log-probabilities of the word after each of `words`; `values` and `state` are what `read` gave."""
        keys, written, states = self.attention.keys(values), self.embed(words), []
        for step in range(words.shape[1]):
            context = self.attention(state, values, keys, mask)
            state = self.writer(self.dropout(torch.cat([written[:, step], context], dim=-1)), state)
            states.append(state)
        return at_least_float32(self.out(torch.stack(states, dim=1))).log_softmax(dim=-1)

    def loss(
        self,
        regions: Float[Tensor, "image region in"],
        mask: Bool[Tensor, "image region"],
        owner: Int[Tensor, " text"],
        texts: TextBatch,
        longest: int,
    ) -> Float[Tensor, ""]:
        """−log p of every caption of its own picture `owner[t]`, summed over its words, averaged over the captions."""
        labels, wanted = caption_labels(texts, longest)
        steps = min(int(texts.lengths.max()), longest - 1)  # no caption asks for more
        values, state = self.read(regions, mask)
        spoken = self(values[owner], state[owner], mask[owner], labels[:, :steps])
        return caption_loss(spoken, labels, wanted)


def caption_labels(texts: TextBatch, longest: int) -> tuple[Int[Tensor, "text label"], Bool[Tensor, "text label"]]:
    """The words to say, <start> to <end>, in `longest` + 1 places, and which of them count.

    Captions of more than `longest` words are cut, their last word made <end>. One <pad> after <end> counts too, as in
    the official code.
    """
    count, given = texts.tokens.shape
    lengths = texts.lengths.clamp(max=longest)
    kept = min(given, longest)
    labels = texts.tokens.new_zeros(count, longest + 1)
    labels[:, :kept] = texts.tokens[:, :kept].masked_fill(~texts.mask[:, :kept], 0)
    cut = texts.lengths > longest
    labels[cut, longest - 1] = END
    return labels, torch.arange(longest + 1, device=labels.device) <= lengths[:, None]


def caption_loss(
    spoken: Float[Tensor, "text step vocabulary"], labels: Int[Tensor, "text label"], wanted: Bool[Tensor, "text label"]
) -> Float[Tensor, ""]:
    """Step s is to say label s + 1, where that is wanted."""
    following = slice(1, spoken.shape[1] + 1)
    missed = -spoken.gather(2, labels[:, following, None])[:, :, 0]
    return (missed * wanted[:, following]).sum() / len(labels)
