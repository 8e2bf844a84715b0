"""The backbone of the built-in world's detector: a small residual network whose levels are joined, coarse to fine, in
one map of stride 4. Half of the world's things are below 20 pixels, hence the fine strides.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.backbones.base import Backbone, NormedConvolution, fold


class Convolution(NormedConvolution):
    """Convolution, batch normalisation and, unless told otherwise, a rectifier."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, rectify: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.rectify = rectify

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        maps = self.norm(self.conv(maps))
        return functional.relu(maps, inplace=True) if self.rectify else maps


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels)
        self.second = Convolution(channels, channels, rectify=False)

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image channel row column"]:
        return functional.relu(maps + self.second(self.first(maps)))


class WorldMaps(NamedTuple):
    """What the detector of the world reads."""

    joined: Float[Tensor, "image dim row column"]  # stride 4, every level in it
    detail: Float[Tensor, "image stem row2 column2"]  # stride 2, the first level: grain and edges of small things
    context: Float[Tensor, "image coarse"]  # the mean of the last level: place and light of the whole picture


class WorldBackbone(Backbone):
    """As a backbone for others: the detail of stride 2 and the joined map of stride 4."""

    def __init__(
        self, channels: tuple[int, ...] = (16, 48, 96, 160), dim: int = 64, size: int = 128, name: str = "world"
    ) -> None:
        super().__init__()
        stem, fine, middle, coarse = channels
        self.name, self.strides, self.channels, self.size = name, (2, 4), (stem, dim), size
        self.stem = Convolution(3, stem, stride=2)
        self.fine = nn.Sequential(Convolution(stem, fine, stride=2), Residual(fine))  # stride 4
        self.middle = nn.Sequential(Convolution(fine, middle, stride=2), Residual(middle))  # stride 8
        self.coarse = nn.Sequential(Convolution(middle, coarse, stride=2), Residual(coarse))  # stride 16
        self.join = nn.ModuleList(Convolution(c, dim, kernel=1, rectify=False) for c in (fine, middle, coarse))
        self.smooth = Convolution(dim, dim)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        """Bytes as floats of about unit spread."""
        floats = pixels.permute(0, 3, 1, 2).to(torch.float32)  # a view: the memory stays channels-last
        return (floats - 127.5) * (1 / 64)

    def maps(self, pictures: Float[Tensor, "image 3 height width"]) -> WorldMaps:
        detail = self.stem(pictures)
        fine = self.fine(detail)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        joined = self.join[2](coarse)
        for lateral, level in ((self.join[1], middle), (self.join[0], fine)):
            joined = lateral(level) + functional.interpolate(joined, size=level.shape[-2:], mode="nearest")
        return WorldMaps(self.smooth(functional.relu(joined)), detail, coarse.mean(dim=(2, 3)))

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        maps = self.maps(pictures)
        return maps.detail, maps.joined

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        return self.stem, self.fine, self.middle, self.coarse, self.join, self.smooth

    def fold_normalisation(self) -> None:
        fold(self)


def open_backbone(argument: str = "world", pretrained: bool = True) -> WorldBackbone:
    """`world`, or `world:FOLDER` with the weights of a trained detector. Trained weights come folded."""
    if not pretrained:
        return WorldBackbone()
    from saccade.vision.detectors.world import SHIPPED, load_world_extractor  # which is built on this module

    given = argument != "world"
    network = load_world_extractor(Path(argument) if given else SHIPPED).network.requires_grad_(True)
    network.backbone.name = f"world:{argument}" if given else "world"
    return network.backbone
