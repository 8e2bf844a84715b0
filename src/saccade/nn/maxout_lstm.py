"""An LSTM cell whose candidate is the larger of two linear maps, as in self-critical training's adaptive captioner."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MaxoutLstmCell(nn.Module):
    """i, f, o = σ(…); c' = f c + i max(a₁, a₂); h' = o tanh(c'). Called as `nn.LSTMCell` is."""

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
