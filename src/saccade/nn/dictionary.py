"""A dictionary that things are put into the words of: what comes out is made of its entries alone (SGAE, CVPR 2019)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.nn.precision import at_least_float32


def read_out(asked: Float[Tensor, "*item dim"], entries: Float[Tensor, "entry dim"]) -> Float[Tensor, "*item dim"]:
    """R(x) = softmax(x Dᵀ) D: the entries that x is like, each as far as it is."""
    weights = at_least_float32(asked @ entries.T).softmax(dim=-1)
    return weights.to(asked.dtype) @ entries.to(asked.dtype)


class Dictionary(nn.Module):
    """D: entries that learn what is said of what, whatever they are asked from: a sentence or a picture.

    They start between 0 and 0.01, nearly alike, and take long to part; with a `spread` they differ from the start.
    """

    def __init__(self, count: int, dim: int, spread: float = 0.0) -> None:
        super().__init__()
        start = torch.randn(count, dim) * spread if spread else torch.rand(count, dim) / 100
        self.entries = nn.Parameter(start)

    def forward(self, asked: Float[Tensor, "*item dim"]) -> Float[Tensor, "*item dim"]:
        return read_out(asked, self.entries)
