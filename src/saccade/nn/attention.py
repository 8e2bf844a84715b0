"""The parts of attention: weights over the real entries, what is attended to, and its cosine."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, einsum, nn

from saccade.nn.encode import at_least_float32, dropout_layer, full_precision
from saccade.ops.form import EPSILON

Activation = Literal["tanh", "relu"]


def masked_softmax(
    scores: Float[Tensor, "*items part"], mask: Bool[Tensor, "*#items part"]
) -> Float[Tensor, "*items part"]:
    """Over the last axis, where the mask is True; all weights are alike where it is True nowhere."""
    scores = at_least_float32(scores)
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)


class AdditiveAttention(nn.Module):
    """e_r = w · act(W_v v_r + W_h h + b), α = softmax over the real regions.

    W_v v_r + b is the same for every word: `keys` computes it once for a picture, through further tanh layers where
    there are more `layers`. The scores have no bias of their own: it would not change a softmax.
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
        sums = keys + self.state(state)[:, None]
        hidden = sums.tanh_() if self.activation == "tanh" else sums.relu_()
        return at_least_float32(self.weigh(self.dropout(hidden))[..., 0])

    def forward(
        self,
        state: Float[Tensor, "row state"],
        keys: Float[Tensor, "row region dim"],
        mask: Bool[Tensor, "row region"],
    ) -> Float[Tensor, "row region"]:
        """α; 0 at padding."""
        return masked_softmax(self.scores(state, keys), mask)


def attended(
    weights: Float[Tensor, "row region"], regions: Float[Tensor, "row region dim"]
) -> Float[Tensor, "row dim"]:
    """What each row attends to: Σ_r α_r v_r."""
    return torch.bmm(weights[:, None].to(regions.dtype), regions)[:, 0]


def products(one: Float[Tensor, "*#pair query dim"], other: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """Q Kᵀ, in float32 at least; an axis of pairs that only one of the two has is never copied."""
    with full_precision(one):
        return einsum("...qd,...pd->...qp", at_least_float32(one), at_least_float32(other))


def summed(weights: Float[Tensor, "*#pair query part"], vectors: Float[Tensor, "*#pair part dim"]) -> Tensor:
    """What the queries attend to: A = α C, in the precision of C."""
    with full_precision(vectors):
        return einsum("...qp,...pd->...qd", weights.to(vectors.dtype), vectors)


def attended_length(weights: Float[Tensor, "*pair query part"], gram: Float[Tensor, "*#pair part part"]) -> Tensor:
    """|a| of a = Σ α c without a: √(α G αᵀ), where G = C Cᵀ is the Gram matrix of the context."""
    return (summed(weights, gram) * weights).sum(dim=-1).clamp(min=EPSILON**2).sqrt()


def attended_cosine(
    weights: Float[Tensor, "*pair query part"],
    scores: Float[Tensor, "*pair query part"],
    length: Float[Tensor, "*#pair query"],
    gram: Float[Tensor, "*#pair part part"],
) -> Float[Tensor, "*pair query"]:
    """cos(q, a) of a = Σ α c without a, from the scores s = q · c: Σ α s / (|q| |a|)."""
    return (weights * scores).sum(dim=-1) / (length * attended_length(weights, gram)).clamp(min=EPSILON)
