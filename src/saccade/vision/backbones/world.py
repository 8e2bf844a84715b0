"""The extractor's convolutions: a small residual network whose levels are joined, coarse to fine, in one map of stride
4.

What an extractor is made of and what it can name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.backbones import base
from saccade.vision.backbones.base import NormedConvolution, fold
from saccade.vision.boxes import GEOMETRY_DIM

REGION_ATTRIBUTES = ("kind", "colour", "size", "material", "pose", "facing")
PICTURE_ATTRIBUTES = ("background", "lighting")  # named from the whole-picture region


@dataclass(frozen=True)
class WorldExtractorConfig:
    """The sizes of the network, how it proposes, and the labels of each attribute."""

    picture_size: int = 128  # pictures are stretched to this square
    channels: tuple[int, ...] = (16, 48, 96, 160)  # at strides 2, 4, 8, 16
    map_dim: int = 64
    roi_size: int = 7
    roi_dim: int = 96
    hidden: int = 320
    dim: int = 256  # of a region's vector: appearance, then geometry
    geometry_scale: float = 1.5
    proposals: int = 12  # at most, the whole picture not counted
    score_threshold: float = 0.25
    nms_threshold: float = 0.7
    kinds: tuple[str, ...] = ()
    colours: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    materials: tuple[str, ...] = ()
    poses: tuple[str, ...] = ()
    facings: tuple[str, ...] = ()
    backgrounds: tuple[str, ...] = ()
    lightings: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Attribute → its labels, in the order of the classifiers' outputs."""
        return {
            "kind": self.kinds,
            "colour": self.colours,
            "size": self.sizes,
            "material": self.materials,
            "pose": self.poses,
            "facing": self.facings,
            "background": self.backgrounds,
            "lighting": self.lightings,
        }

    @property
    def appearance_dim(self) -> int:
        return self.dim - GEOMETRY_DIM


class Convolution(NormedConvolution):
    """Convolution, normalisation and, unless told otherwise, a rectifier."""

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


class Maps(NamedTuple):
    """What the backbone makes of a batch of pictures."""

    joined: Float[Tensor, "image dim row column"]  # stride 4, every level in it
    detail: Float[Tensor, "image stem row2 column2"]  # stride 2, the first level: grain and edges of small things
    context: Float[Tensor, "image coarse"]  # the mean of the last level: place and light of the whole picture


class Backbone(nn.Module):
    """Pictures to maps. Half of the world's things are below 20 pixels, hence the fine strides."""

    def __init__(self, channels: tuple[int, ...], dim: int) -> None:
        super().__init__()
        stem, fine, middle, coarse = channels
        self.stem = Convolution(3, stem, stride=2)
        self.fine = nn.Sequential(Convolution(stem, fine, stride=2), Residual(fine))  # stride 4
        self.middle = nn.Sequential(Convolution(fine, middle, stride=2), Residual(middle))  # stride 8
        self.coarse = nn.Sequential(Convolution(middle, coarse, stride=2), Residual(coarse))  # stride 16
        self.join = nn.ModuleList(Convolution(c, dim, kernel=1, rectify=False) for c in (fine, middle, coarse))
        self.smooth = Convolution(dim, dim)

    def forward(self, pictures: Float[Tensor, "image 3 height width"]) -> Maps:
        detail = self.stem(pictures)
        fine = self.fine(detail)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        joined = self.join[2](coarse)
        for lateral, level in ((self.join[1], middle), (self.join[0], fine)):
            joined = lateral(level) + functional.interpolate(joined, size=level.shape[-2:], mode="nearest")
        return Maps(self.smooth(functional.relu(joined)), detail, coarse.mean(dim=(2, 3)))


def parameter_count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def normalise(pictures: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
    """Bytes 0..255, channels last, to floats of about unit spread as the backbone wants them."""
    floats = pictures.permute(0, 3, 1, 2).to(torch.float32)  # a view: the memory stays channels-last
    return (floats - 127.5) * (1 / 64)


class WorldBackbone(base.Backbone):
    """The extractor's convolutions without its heads: the detail of stride 2 and the joined map of stride 4."""

    def __init__(
        self, convolutions: Backbone, name: str = "world", size: int = WorldExtractorConfig.picture_size
    ) -> None:
        super().__init__()
        self.name = name
        self.strides = (2, 4)
        self.channels = (convolutions.stem.conv.out_channels, convolutions.smooth.conv.out_channels)
        self.size = size
        self.convolutions = convolutions

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise(pixels)

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        maps: Maps = self.convolutions(pictures)
        return maps.detail, maps.joined

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        within = self.convolutions
        return within.stem, within.fine, within.middle, within.coarse, within.join, within.smooth

    def fold_normalisation(self) -> None:
        fold(self)


def open_backbone(argument: str = "world", pretrained: bool = True) -> WorldBackbone:
    """`world`, or `world:FOLDER` where the extractor's recipe wrote its weights. Trained weights come folded."""
    if not pretrained:
        config = WorldExtractorConfig()
        return WorldBackbone(Backbone(config.channels, config.map_dim))
    from saccade.vision.detectors.world import WEIGHTS, load_world_extractor  # which is built on this module

    given = argument != "world"
    network = load_world_extractor(Path(argument) if given else WEIGHTS).network.requires_grad_(True)
    return WorldBackbone(network.backbone, f"world:{argument}" if given else "world", network.config.picture_size)
