"""LSTMs that speak: what one remembers between two words, how it starts out, and a cell with another candidate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import Batch


@dataclass(frozen=True)
class LstmMemory(Batch):
    """What an LSTM of one layer remembers between two words."""

    hidden: Float[Tensor, "row dim"]
    cell: Float[Tensor, "row dim"]


@torch.no_grad()
def open_forget_gates(lstm: nn.Module, by: float = 1.0) -> None:
    """Remember at first: an LSTM keeps what it has until it learns to forget."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias_ih"):
            bias[len(bias) // 4 : len(bias) // 2] += by


@torch.no_grad()
def start_lstm(lstm: nn.Module) -> None:
    """Remember at first: the forget gates' bias is one, every other zero."""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias"):
            bias.zero_()
    open_forget_gates(lstm)


class MaxoutLstmCell(nn.Module):
    """The candidate is the larger of two linear maps, as in self-critical training's adaptive captioner.

    i, f, o = σ(…); c' = f c + i max(a₁, a₂); h' = o tanh(c'). Called as `nn.LSTMCell` is.
    """

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.input = nn.Linear(input_dim, 5 * dim)
        self.state = nn.Linear(dim, 5 * dim)

    def forward(
        self, inputs: Float[Tensor, "row in"], state: tuple[Float[Tensor, "row dim"], Float[Tensor, "row dim"]]
    ) -> tuple[Float[Tensor, "row dim"], Float[Tensor, "row dim"]]:
        hidden, cell = state
        sums = self.input(inputs) + self.state(hidden)
        take, keep, give = sums[:, : 3 * self.dim].sigmoid().chunk(3, dim=1)
        candidate = torch.maximum(*sums[:, 3 * self.dim :].chunk(2, dim=1))
        cell = keep * cell + take * candidate
        return give * cell.tanh(), cell
