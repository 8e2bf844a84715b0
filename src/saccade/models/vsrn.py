"""VSRN: Visual Semantic Reasoning for Image-Text Matching (Li, Zhang, Li, Li, Fu; ICCV 2019).

One vector per picture, reasoned from its regions: a graph convolution over a learned affinity relates them, and a GRU
reads them into one vector of the scene; from the same regions a caption must be generated. Pictures and texts are
compared as whole vectors, which an index can hold.

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
from saccade.models.base.matcher import EncoderConfig, EncoderMatcher
from saccade.models.base.model import register
from saccade.nn.attention import attended, masked_softmax, products
from saccade.nn.encode import (
    MaskedBatchNorm,
    StatePool,
    at_least_float32,
    dropout_layer,
    last_state,
    mean_state,
    pooled_state,
    unit,
)
from saccade.nn.recurrent import SentenceGru
from saccade.nn.whole import Measure, nearest_regions, whole_similarity

Affinity = Literal["mean", "softmax"]
RegionNorm = Literal["channels", "regions", "none"]  # each channel over a picture's regions; each region; neither


@dataclass(frozen=True)
class VsrnConfig(EncoderConfig):
    """The official settings for COCO; for Flickr30k `norm_before="none"` and `final_norm=True`."""

    dim: int = 2048  # the common space
    bidirectional: bool = False  # as the next, not in the paper but in its pooled baseline
    text_pool: StatePool = "last"  # of the GRU's states over a sentence
    norm_before: RegionNorm = "channels"  # of the regions before the blocks, and after them
    blocks: int = 4  # of region reasoning; 0: none
    affinity: Affinity = "mean"  # R over k; softmax: rows of R are distributions
    norm_after: RegionNorm = "channels"
    global_reasoning: bool = True  # a GRU over the regions; off: their mean
    memory_span: int = 0  # regions that this GRU remembers at first; 0: PyTorch's start, which forgets half at each
    mean_residual: bool = False  # the GRU adds to the regions' mean, each channel with a weight that begins at zero
    final_norm: bool = False  # batch normalisation of the picture's vector
    measure: Measure = "cosine"  # order: −‖[t − v]₊‖
    unit_images: bool = True
    use_abs: bool = False  # absolute values of both vectors, for the order measure
    caption_weight: float = 1.0  # of L_G; 0: no caption generator
    caption_dim: int = 512
    caption_word_dim: int = 300
    caption_length: int = 60  # longer captions are cut
    caption_bidirectional: bool = False  # the GRU over the regions
    caption_dropout: float = 0.2
    sharpness: float = 9.0  # of the word→region weights in `align`; the score does not use it
    budget_mb: int = 256  # bounds the memory of the order measure

    def __post_init__(self) -> None:
        for name, least in (("blocks", 0), ("caption_weight", 0), ("caption_length", 3), ("memory_span", 0)):
            if not getattr(self, name) >= least:
                raise SaccadeError(f"{name} must be at least {least}, not {getattr(self, name)}")


@register(
    "vsrn", task="matching", title="Visual Semantic Reasoning for Image-Text Matching", venue="Li et al., ICCV 2019"
)
class Vsrn(EncoderMatcher):
    Config = VsrnConfig

    def __init__(self, config: VsrnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)  # eq. 1, and the sentence's GRU
        dim = config.dim
        self.blocks = nn.ModuleList(RelationBlock(dim, config.affinity) for _ in range(config.blocks))  # eq. 2–3
        self.memory = SentenceGru(dim, dim) if config.global_reasoning else None  # eq. 4–7
        if self.memory is not None and config.memory_span:
            remember(self.memory, config.memory_span)
        self.memory_share = nn.Parameter(torch.zeros(dim)) if self.memory is not None and config.mean_residual else None
        self.final_norm = MaskedBatchNorm(dim) if config.final_norm else None
        sizes = len(vocabulary), dim, config.caption_dim, config.caption_word_dim
        options = config.caption_dropout, config.caption_bidirectional
        self.caption = CaptionGenerator(*sizes, *options) if config.caption_weight else None  # eq. 10

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
        """m, from the regions in their stored order."""
        counts = mask.sum(dim=1)
        whole = mean_state(regions, counts) if self.memory is None else last_state(self.memory(regions, counts), counts)
        if self.memory_share is not None:
            whole = mean_state(regions, counts) + self.memory_share * whole
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
        """Eq. 8: L = L_M + L_G; ranking (eq. 9) is the task's, generating the caption (eq. 10) the model's."""
        if self.caption is None:
            return {}
        loss = self.caption.loss(images.regions, images.mask, owner, texts, self.config.caption_length)
        return {"caption_loss": self.config.caption_weight * loss}

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """The regions nearest to each word, the cosine of each with the whole picture (§ 4.5), and R."""
        assert images.pooled is not None
        nearest = nearest_regions(images, texts, self.config.sharpness, self.config.measure)
        share = torch.einsum("prd,pd->pr", unit(images.regions), unit(images.pooled))
        return replace(nearest, region_score=share, region_links=images.links)


def normalise(regions: Float[Tensor, "image region dim"], over: RegionNorm) -> Float[Tensor, "image region dim"]:
    """To length one: each channel over the regions of a picture, as in the official code, or each region."""
    if over == "channels":
        return unit(regions.transpose(1, 2)).transpose(1, 2)
    return unit(regions) if over == "regions" else regions


@torch.no_grad()
def remember(gru: nn.GRU, span: int) -> None:
    """Update gates that begin with memories of 1 to `span` places (chrono initialisation; Tallec, Ollivier, ICLR 2018).

    With h ← z h + (1 − z) n and z = σ(b), b = log t keeps a place for about t + 1 more.
    """
    gates = slice(gru.hidden_size, 2 * gru.hidden_size)  # PyTorch's order: reset, update, new
    biases = dict(gru.named_parameters())
    biases["bias_ih_l0"][gates].uniform_(1, max(1, span - 1)).log_()
    biases["bias_hh_l0"][gates].zero_()


class RelationBlock(nn.Module):
    """Eq. 2–3; the identity at first. With `affinity="softmax"` the rows of R are distributions instead.

    A block is cubic in V: keep V small.
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
        """R, how much the first region takes from the second; zero at padding."""
        scores = products(self.taking(regions), self.giving(regions))
        if self.affinity == "softmax":
            scores = masked_softmax(scores, mask[:, None])
        else:
            scores = scores / mask.sum(dim=1).clamp(min=1)[:, None, None]
        return scores * (mask[:, :, None] & mask[:, None])

    def forward(
        self, regions: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"]
    ) -> tuple[Float[Tensor, "image region dim"], Float[Tensor, "image region region"]]:
        """The related regions, and R."""
        links = self.links(regions, mask)
        return regions + self.norm(self.mix(links @ self.message(regions)), mask), links


class ConcatAttention(nn.Module):
    """e_r = w · tanh(W [o_r ; h] + b); the context is Σ_r softmax(e)_r o_r, over the real regions.

    `saccade.nn`'s `AdditiveAttention` with one matrix W for o and h, as the official weights have it.
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
        query = F.linear(state, self.match.weight[:, values.shape[2] :])
        scores: Tensor = self.weigh(torch.tanh(keys + query[:, None]))[:, :, 0]
        return attended(masked_softmax(scores, mask), values)


class CaptionGenerator(nn.Module):
    """p(y_{s+1} | y_0 … y_s, V), eq. 10: one GRU encodes the regions, another attends to its states and generates.

    After S2VT; for the loss only, with teacher forcing.
    """

    def __init__(
        self,
        vocabulary: int,
        region_dim: int,
        dim: int,
        word_dim: int,
        dropout: float,
        bidirectional: bool,  # of the GRU over the regions
    ) -> None:
        super().__init__()
        wide = 2 * dim if bidirectional else dim
        self.dropout = dropout_layer(dropout)
        self.project = nn.Linear(region_dim, dim)
        self.reader = SentenceGru(dim, dim, bidirectional=bidirectional)
        self.embed = nn.Embedding(vocabulary, word_dim)
        self.attention = ConcatAttention(wide)
        self.writer = nn.GRUCell(word_dim + wide, wide)
        self.out = nn.Linear(wide, vocabulary)
        nn.init.xavier_normal_(self.project.weight)
        nn.init.xavier_normal_(self.out.weight)

    def read(
        self, regions: Float[Tensor, "image region in"], mask: Bool[Tensor, "image region"]
    ) -> tuple[Float[Tensor, "image region dim"], Float[Tensor, "image dim"]]:
        """The states over the regions, and the last one, from which generation starts."""
        counts = mask.sum(dim=1)
        states = self.reader(self.dropout(self.project(regions)), counts)
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
        steps = min(texts.tokens.shape[1], longest - 1)  # no caption needs more
        values, state = self.read(regions, mask)
        log_probabilities = self(values[owner], state[owner], mask[owner], labels[:, :steps])
        return caption_loss(log_probabilities, labels, wanted)


def caption_labels(texts: TextBatch, longest: int) -> tuple[Int[Tensor, "text label"], Bool[Tensor, "text label"]]:
    """The words, <start> to <end>, in `longest` + 1 places, and which of them count.

    Captions of more than `longest` words are cut, their last word made <end>. One <pad> after <end> counts too, as in
    the official code.
    """
    kept = min(texts.tokens.shape[1], longest)
    labels = F.pad((texts.tokens * texts.mask)[:, :kept], (0, longest + 1 - kept))
    labels[:, longest - 1] = torch.where(texts.lengths > longest, END, labels[:, longest - 1])
    return labels, torch.arange(longest + 1, device=labels.device) <= texts.lengths.clamp(max=longest)[:, None]


def caption_loss(
    log_probabilities: Float[Tensor, "text step vocabulary"],
    labels: Int[Tensor, "text label"],
    wanted: Bool[Tensor, "text label"],
) -> Float[Tensor, ""]:
    """−log p of label s + 1 at step s, where it is wanted."""
    following = slice(1, log_probabilities.shape[1] + 1)
    nll = -log_probabilities.gather(2, labels[:, following, None])[:, :, 0]
    return (nll * wanted[:, following]).sum() / len(labels)
