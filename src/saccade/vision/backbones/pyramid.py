"""The maps of a backbone as one map that detectors read: coarse ones know what is there, fine ones where."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.backbones.base import Backbone


class FeaturePyramid(nn.Module):
    """Maps of a backbone as one: each coarser one, brought to the common width, is added to the next finer.

    Where all are coarser than `stride`, as those of a ViT are, transposed convolutions make the sum finer (ViTDet: Li,
    Mao, Girshick, He; ECCV 2022).
    """

    def __init__(self, backbone: Backbone, stride: int, dim: int) -> None:
        super().__init__()
        wanted = [i for i, s in enumerate(backbone.strides) if s >= stride]
        self.levels = tuple(wanted or [len(backbone.strides) - 1])
        self.laterals = nn.ModuleList(nn.Conv2d(backbone.channels[i], dim, 1) for i in self.levels)
        doublings = max(0, round(math.log2(backbone.strides[self.levels[0]] / stride)))
        self.upsample = nn.Sequential(*(layer for _ in range(doublings) for layer in _doubling(dim)))
        self.smooth = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False),
            nn.Conv2d(dim, dim, 1, bias=False),
            nn.GroupNorm(norm_groups(dim), dim),
            nn.ReLU(inplace=True),
        )

    def forward(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        smoothed: Tensor = self.smooth(self.upsample(self.add_levels(levels)))
        return smoothed

    def add_levels(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        """Coarse added to fine, before they are smoothed."""
        joined: Tensor | None = None
        for i, lateral in reversed(list(zip(self.levels, self.laterals, strict=True))):
            level = lateral(levels[i])
            if joined is not None:
                level = level + functional.interpolate(joined, size=level.shape[-2:], mode="nearest")
            joined = level
        assert joined is not None
        return joined


def _doubling(dim: int) -> tuple[nn.Module, ...]:
    """A map of twice as many rows and columns."""
    return nn.ConvTranspose2d(dim, dim, 2, stride=2, bias=False), nn.GroupNorm(norm_groups(dim), dim), nn.GELU()


def norm_groups(channels: int) -> int:
    """Of a group normalisation: 16, or as many as divide the channels."""
    return next(g for g in (16, 8, 4, 2, 1) if channels % g == 0)
