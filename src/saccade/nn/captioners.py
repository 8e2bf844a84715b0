"""What captioners share: embedded regions, what they attend to, and the LSTMs that generate the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.batch import Batch
from saccade.nn.encode import MaskedBatchNorm, dropout_layer

RegionBatchNorm = Literal["none", "before", "around"]  # use_bn = 0, 1, 2 of the reference code
LstmState = tuple[Float[Tensor, "row dim"], Float[Tensor, "row dim"]]  # the hidden state and the cell


class RegionEmbedding(nn.Module):
    """v = BN(dropout(ReLU(W BN(x) + b))) for the real regions; padding stays zero and counts in no statistic."""

    def __init__(self, region_dim: int, dim: int, norm: RegionBatchNorm = "none", dropout: float = 0.0) -> None:
        super().__init__()
        self.before = MaskedBatchNorm(region_dim) if norm != "none" else None
        self.linear = nn.Linear(region_dim, dim)
        self.dropout = dropout_layer(dropout)
        self.after = MaskedBatchNorm(dim) if norm == "around" else None

    def forward(
        self, features: Float[Tensor, "row region in"], mask: Bool[Tensor, "row region"]
    ) -> Float[Tensor, "row region dim"]:
        if self.before is not None:
            features = self.before(features, mask)
        regions: Tensor = self.dropout(self.linear(features).relu()) * mask[:, :, None]
        return regions if self.after is None else self.after(regions, mask)


def mean_region(
    features: Float[Tensor, "row region dim"], mask: Bool[Tensor, "row region"]
) -> Float[Tensor, "row dim"]:
    """The whole picture as the mean of its regions; zero where there are none."""
    return (features * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class RegionContext(Batch):
    """What a captioner computes once for a picture, to attend to before every word."""

    regions: Float[Tensor, "row region dim"]
    keys: Float[Tensor, "row region attention_dim"]
    mask: Bool[Tensor, "row region"]


@dataclass(frozen=True)
class PictureContext(RegionContext):
    """Also the picture as a whole, which is an input of every step."""

    whole: Float[Tensor, "row whole_dim"]


@dataclass(frozen=True)
class LstmMemory(Batch):
    """The state of an LSTM of one layer between two words."""

    hidden: Float[Tensor, "row dim"]
    cell: Float[Tensor, "row dim"]


@torch.no_grad()
def open_forget_gates(lstm: nn.Module, by: float = 1.0) -> None:
    """Add `by` to the bias of the forget gates: an LSTM remembers until it learns to forget."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias_ih"):
            bias[len(bias) // 4 : len(bias) // 2] += by


@torch.no_grad()
def start_lstm(lstm: nn.Module) -> None:
    """Biases of one at the forget gates and zero elsewhere."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias"):
            bias.zero_()
    open_forget_gates(lstm)


@dataclass(frozen=True)
class TopDownMemory(Batch):
    """The states of both LSTMs between two words."""

    attention_hidden: Float[Tensor, "row dim"]  # h¹
    attention_cell: Float[Tensor, "row dim"]
    language_hidden: Float[Tensor, "row dim"]  # h², from which a word is predicted
    language_cell: Float[Tensor, "row dim"]


class TopDown(nn.Module):
    """The attention LSTM and the language LSTM on top of it (Anderson et al., CVPR 2018).

        h¹ = LSTM₁([h²; v̄; x], h¹),   v̂ = what h¹ attends to in the picture,   h² = LSTM₂([v̂; h¹], h²)

    How to attend between the two is left to the model. `attention_gain` multiplies the initial weights of h¹ in LSTM₂;
    1 is the published form. A fresh h¹ is about an eighth as large as word vectors: with a gain of 8 it counts as much.
    """

    def __init__(self, word_dim: int, whole_dim: int, attended_dim: int, dim: int, attention_gain: float = 1.0) -> None:
        super().__init__()
        self.look_lstm = nn.LSTMCell(dim + whole_dim + word_dim, dim)
        self.say_lstm = nn.LSTMCell(attended_dim + dim, dim)
        with torch.no_grad():
            self.say_lstm.weight_ih[:, attended_dim:] *= attention_gain

    def initial_memory(self, context: Float[Tensor, "row ..."]) -> TopDownMemory:
        """Zeros, a row for each of the context's."""
        zeros = context.new_zeros(len(context), self.look_lstm.hidden_size)
        return TopDownMemory(zeros, zeros, zeros, zeros)

    def attention_step(
        self, word: Float[Tensor, "row word_dim"], whole: Float[Tensor, "row whole_dim"], memory: TopDownMemory
    ) -> LstmState:
        """h¹ and its cell."""
        inputs = torch.cat([memory.language_hidden, whole, word], dim=1)
        state: LstmState = self.look_lstm(inputs, (memory.attention_hidden, memory.attention_cell))
        return state

    def language_step(
        self, attended: Float[Tensor, "row attended_dim"], attention: LstmState, memory: TopDownMemory
    ) -> TopDownMemory:
        """The memory after this word, given what h¹ attended to."""
        inputs = torch.cat([attended, attention[0]], dim=1)
        hidden, cell = self.say_lstm(inputs, (memory.language_hidden, memory.language_cell))
        return TopDownMemory(*attention, hidden, cell)
