"""Adaptive attention: Knowing When to Look: Adaptive Attention via A Visual Sentinel for Image Captioning (Lu, Xiong,
Parikh, Socher; CVPR 2017).

Not every word is in the picture: "of" and "the" follow from the words before. Beside the regions, the LSTM gives a
vector of what it knows already, the visual sentinel; attention is shared between both, and β is the sentinel's weight.
Equation numbers are the paper's; `docs/systems/adaptive.md` has them in full.

    V = ReLU(W_a a_i), v_g = ReLU(W_b mean a)  (14–16)     x = [w, v_g]     h, m = LSTM(x, h, m)
    z = w · tanh(W_v V + W_g h)  (6)     α = softmax(z)  (7)     c = Σ α_i v_i  (8)
    g = σ(W_x x + W_h h₋₁)  (9)     s = g ⊙ tanh(m)  (10)
    α̂ = softmax([z, w · tanh(W_s s + W_g h)])  (12)     β = α̂ of s     ĉ = β s + (1 − β) c  (11)
    p(y) = softmax(W_p (ĉ + h))  (13)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import Batch, CaptionState, RegionBatch, StepOutput
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.captioner import RecurrentCaptioner
from saccade.models.base.model import register
from saccade.nn.attention import AdditiveAttention, attended, masked_softmax
from saccade.nn.captioners import LstmState, PictureContext, RegionBatchNorm, RegionEmbedding
from saccade.nn.encode import dropout_layer


@dataclass(frozen=True)
class AdaptiveConfig:
    """The form of the authors' code, with which the paper's figures were made.

    It has three layers more than the equations (`transforms`): s and h go through one each before they are attended
    to, compared and added, and the sum through one before the words. `transforms=false` is the paper as printed.
    """

    region_dim: int = 2048
    word_dim: int = 512
    dim: int = 512  # d, of regions, LSTM and sentinel
    attention_dim: int = 512  # the paper has as many as regions, 49; its code 512
    layers: int = 1  # of the LSTM; the sentinel is the top one's
    maxout: bool = False  # the LSTM's candidate is the larger of two linear maps; not in the paper
    sentinel: bool = True  # off: spatial attention only
    transforms: bool = True
    word_relu: bool = True  # w = ReLU(W_e Π), in the code only
    region_norm: RegionBatchNorm = "none"  # batch normalisation before, or before and after, the regions' layer
    dropout: float = 0.5

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise SaccadeError(f"layers must be at least 1, not {self.layers}")


@dataclass(frozen=True)
class AdaptiveMemory(Batch):
    hidden: Float[Tensor, "row layer dim"]  # h
    cell: Float[Tensor, "row layer dim"]  # m


class MaxoutLstmCell(nn.Module):
    """An LSTM whose candidate is the larger of two linear maps, as in self-critical training's adaptive captioner.

    i, f, o = σ(…); c' = f c + i max(a₁, a₂); h' = o tanh(c'). Called as `nn.LSTMCell` is.
    """

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.input = nn.Linear(input_dim, 5 * dim)
        self.state = nn.Linear(dim, 5 * dim)

    def forward(self, inputs: Float[Tensor, "row in"], state: LstmState) -> LstmState:
        hidden, cell = state
        sums = self.input(inputs) + self.state(hidden)
        take, keep, give = sums[:, : 3 * self.dim].sigmoid().chunk(3, dim=1)
        candidate = torch.maximum(*sums[:, 3 * self.dim :].chunk(2, dim=1))
        cell = keep * cell + take * candidate
        return give * cell.tanh(), cell


class Sentinel(nn.Module):
    """s = σ(W_x x + W_h h₋₁) ⊙ tanh(m)  (9–10), and its key W_s s."""

    def __init__(self, input_dim: int, dim: int, attention_dim: int, transform: bool, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout_layer(dropout)
        self.gate = nn.Linear(input_dim + dim, dim)  # W_x, W_h
        self.transform = nn.Linear(dim, dim) if transform else None
        self.key = nn.Linear(dim, attention_dim)  # W_s

    def forward(
        self, inputs: Float[Tensor, "row in"], before: Float[Tensor, "row dim"], cell: Float[Tensor, "row dim"]
    ) -> tuple[Float[Tensor, "row dim"], Float[Tensor, "row 1 attention"]]:
        gate = self.gate(torch.cat([inputs, before], dim=1)).sigmoid()
        sentinel: Tensor = self.dropout(gate * cell.tanh())
        if self.transform is not None:
            sentinel = self.dropout(self.transform(sentinel).relu())
        return sentinel, self.key(sentinel)[:, None]


State = CaptionState[AdaptiveMemory, PictureContext]


@register(
    "adaptive",
    task="captioning",
    title="Knowing When to Look: Adaptive Attention via A Visual Sentinel for Image Captioning",
    venue="Lu et al., CVPR 2017",
)
class Adaptive(RecurrentCaptioner[AdaptiveMemory, PictureContext]):
    Config = AdaptiveConfig

    def __init__(self, config: AdaptiveConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        dim, attention, rate = config.dim, config.attention_dim, config.dropout
        self.dropout = dropout_layer(rate)
        self.word_relu = config.word_relu
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.regions = RegionEmbedding(config.region_dim, dim, config.region_norm, rate)
        self.whole = nn.Linear(config.region_dim, dim)
        widths = [config.word_dim + dim, *[dim] * (config.layers - 1)]
        cell = MaxoutLstmCell if config.maxout else nn.LSTMCell
        self.lstms = nn.ModuleList(cell(width, dim) for width in widths)
        self.look = AdditiveAttention(dim, dim, attention, dropout=rate)
        self.sentinel = Sentinel(widths[-1], dim, attention, config.transforms, rate) if config.sentinel else None
        self.hidden = nn.Linear(dim, dim) if config.transforms else None
        self.join = nn.Linear(dim, dim) if config.transforms else None
        self.out = nn.Linear(dim, len(vocabulary))  # W_p: eq. 13

    def start_from(self, images: RegionBatch, whole: Float[Tensor, "row region_dim"]) -> State:
        regions = self.regions(images.features, images.mask)  # eq. 14–15
        whole = self.dropout(self.whole(whole).relu())  # eq. 16
        zeros = regions.new_zeros(len(regions), self.config.layers, self.config.dim)
        context = PictureContext(regions, self.look.keys(regions), images.mask, whole)  # V, W_v V, v_g
        return CaptionState(AdaptiveMemory(zeros, zeros), context)

    def decode_step(
        self, word: Float[Tensor, "row word_dim"], state: State
    ) -> StepOutput[AdaptiveMemory, PictureContext]:
        memory, context = state.memory, state.context
        inputs = torch.cat([word, context.whole], dim=1)
        states: list[LstmState] = []
        for layer, lstm in enumerate(self.lstms):
            inputs = self.dropout(states[-1][0]) if layer else inputs
            states.append(lstm(inputs, (memory.hidden[:, layer], memory.cell[:, layer])))
        after = AdaptiveMemory(*(torch.stack(parts, dim=1) for parts in zip(*states, strict=True)))
        state = CaptionState(after, context)
        top = self.dropout(states[-1][0])
        if self.hidden is not None:
            top = self.dropout(self.hidden(top).tanh())
        if self.sentinel is None:
            weights = self.look(top, context.keys, context.mask)  # eq. 6–7
            return StepOutput(self._join(attended(weights, context.regions) + top), state, weights)
        sentinel, key = self.sentinel(inputs, memory.hidden[:, -1], states[-1][1])  # eq. 9–10
        scores = torch.cat([self.look.scores(top, key), self.look.scores(top, context.keys)], dim=1)
        mask = torch.cat([torch.ones_like(context.mask[:, :1]), context.mask], dim=1)
        both = masked_softmax(scores, mask)  # eq. 12
        beta, weights = both[:, 0], both[:, 1:]
        adaptive = beta[:, None].to(sentinel.dtype) * sentinel + attended(weights, context.regions)  # eq. 8, 11
        return StepOutput(self._join(adaptive + top), state, weights, beta)

    def _join(self, both: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
        """What words are predicted from: context and state together."""
        return both if self.join is None else self.dropout(self.join(both).tanh())
