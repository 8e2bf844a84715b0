"""Additive attention of a captioner: the state before a word asks, every region answers, shares come of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.batch import Batch
from saccade.nn.attention import masked_softmax
from saccade.nn.encode import dropout_layer
from saccade.nn.precision import at_least_float32

Activation = Literal["tanh", "relu"]


@dataclass(frozen=True)
class RegionContext(Batch):
    """What a captioner takes from a picture once, to look at before every word."""

    regions: Float[Tensor, "row region dim"]
    keys: Float[Tensor, "row region look"]
    mask: Bool[Tensor, "row region"]


@dataclass(frozen=True)
class PictureContext(RegionContext):
    """Also the picture as a whole, which the captioner has in mind whatever it looks at."""

    whole: Float[Tensor, "row whole"]


class Look(nn.Module):
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


def found(weights: Float[Tensor, "row region"], regions: Float[Tensor, "row region dim"]) -> Float[Tensor, "row dim"]:
    """What a look brings back: Σ_r α_r v_r."""
    return torch.bmm(weights[:, None].to(regions.dtype), regions)[:, 0]
