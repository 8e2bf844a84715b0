"""Regions as captioners take them in: a linear map and a ReLU, with batch normalisation before or around it."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.nn.encode import dropout_layer
from saccade.nn.relation import MaskedBatchNorm

RegionBatchNorm = Literal["none", "before", "around"]  # use_bn = 0, 1, 2 of the reference code


class RegionEmbedding(nn.Module):
    """v = BN(dropout(ReLU(W BN(x) + b))) for the regions that are there; padding stays zero and counts in no norm."""

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
