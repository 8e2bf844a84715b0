"""The pieces of attention that papers write out: weights over what is there, what they find, and how long that is."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, einsum, nn
from torch.nn import functional as F

from saccade.nn.encode import dropout_layer
from saccade.nn.precision import at_least_float32
from saccade.ops import EPSILON

Activation = Literal["tanh", "relu"]


def masked_softmax(
    scores: Float[Tensor, "*items part"], mask: Bool[Tensor, "*#items part"]
) -> Float[Tensor, "*items part"]:
    """Over the last axis, where the mask is True; where it is nowhere, all are alike."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)


class AdditiveAttention(nn.Module):
    """e_r = w · act(W_v v_r + W_h h + b), α = softmax over the regions that are there.

    W_v v_r + b is the same for every word: `keys` takes it once for a picture. With more `layers`, keys go through
    further tanh layers first. The scores have no bias of their own: a softmax is blind to it.
    """

    def __init__(
        self,
        region_dim: int,
        state_dim: int,
        dim: int,
        activation: Activation = "tanh",
        layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,  # of act(…), in training
    ) -> None:
        super().__init__()
        self.activation = activation
        self.dropout = dropout_layer(dropout)
        self.region = nn.Linear(region_dim, dim, bias=bias)
        self.deeper = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers - 1))
        self.state = nn.Linear(state_dim, dim, bias=False)
        self.weigh = nn.Linear(dim, 1, bias=False)

    def keys(self, regions: Float[Tensor, "row region in"]) -> Float[Tensor, "row region dim"]:
        keys: Tensor = self.region(regions)
        for layer in self.deeper:
            keys = torch.tanh(layer(keys))
        return keys

    def scores(
        self, state: Float[Tensor, "row state"], keys: Float[Tensor, "row region dim"]
    ) -> Float[Tensor, "row region"]:
        met = keys + self.state(state)[:, None]
        met = met.tanh_() if self.activation == "tanh" else met.relu_()
        return at_least_float32(self.weigh(self.dropout(met))[..., 0])

    def forward(
        self,
        state: Float[Tensor, "row state"],
        keys: Float[Tensor, "row region dim"],
        mask: Bool[Tensor, "row region"],
    ) -> Float[Tensor, "row region"]:
        """The share of each region; 0 at padding."""
        return masked_softmax(self.scores(state, keys), mask)


def attended(
    weights: Float[Tensor, "row region"], regions: Float[Tensor, "row region dim"]
) -> Float[Tensor, "row dim"]:
    """What each row attends to: Σ_r α_r v_r."""
    return torch.bmm(weights[:, None].to(regions.dtype), regions)[:, 0]


def products(one: Float[Tensor, "*#pair query dim"], other: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """Q Kᵀ; an axis of pairs that only one of the two has is never copied."""
    return einsum("...qd,...pd->...qp", one, other)


def summed(weights: Float[Tensor, "*#pair query part"], vectors: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """What the queries find: A = α C."""
    return einsum("...qp,...pd->...qd", weights, vectors)


def found_length(weights: Float[Tensor, "*pair query part"], gram: Float[Tensor, "*#pair part part"]) -> Tensor:
    """|a| of a = Σ α c without a: √(α G αᵀ), where G = C Cᵀ is the Gram matrix of the context."""
    return (summed(weights, gram) * weights).sum(dim=-1).clamp(min=EPSILON**2).sqrt()


class HeadPool(nn.Module):
    """The share of each part in a sum of all: softmax(L₂ ReLU(L₁ x)) over the parts, the mean of several heads.

    Where x is a sum, L₁ of a part that all pairs have in common may be given. L₂ has no bias: a softmax is blind to it.
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
        if known is None or torch.is_grad_enabled():
            hidden = self.hidden(vectors)
            hidden = hidden.relu() if known is None else (hidden + known.to(hidden.dtype)).relu_()
        else:  # in place, the bias with what is known: it is the smaller of the two
            hidden = F.linear(vectors, self.hidden.weight)
            hidden = hidden.add_((known + self.hidden.bias).to(hidden.dtype)).relu_()
        scores = at_least_float32(self.heads(hidden)).transpose(-1, -2)
        return masked_softmax(scores, mask[..., None, :]).mean(dim=-2, keepdim=True)
