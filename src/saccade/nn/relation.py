"""Regions that take from each other: a graph convolution over a learned affinity, exact for pictures of any size."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn.attention import masked_softmax
from saccade.nn.precision import at_least_float32

Affinity = Literal["mean", "softmax"]


class MaskedBatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d` over the real entries alone: padding changes no statistic and stays zero."""

    def forward(  # type: ignore[override]
        self, inputs: Float[Tensor, "item place dim"], mask: Bool[Tensor, "item place"]
    ) -> Float[Tensor, "item place dim"]:
        if not self.training:
            return self._normalise(inputs.flatten(0, 1)).view_as(inputs) * mask[:, :, None]
        real = mask.flatten().nonzero()[:, 0]
        normal = self._normalise(inputs.flatten(0, 1).index_select(0, real))
        return torch.zeros_like(inputs).flatten(0, 1).index_copy(0, real, normal).view_as(inputs)

    def _normalise(self, vectors: Float[Tensor, "vector dim"]) -> Float[Tensor, "vector dim"]:
        if self.training and len(vectors) > 1:  # one vector has no spread: it is taken as at rest
            return super().forward(vectors)
        return F.batch_norm(vectors, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


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
