"""A detector small enough to be taught in seconds, and the rectangles of conftest as it learns from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from saccade.vision.backbones.base import MODULES, Backbone
from saccade.vision.boxes import UNKNOWN
from saccade.vision.detectors.bottomup import BottomUpConfig, BottomUpNetwork, BoxedPictures
from saccade.vision.detectors.world import REGION_ATTRIBUTES

MODULES["tiny"] = __name__  # this module stands in the table of backbones
CONFIG = BottomUpConfig(
    backbone="tiny",
    size=64,
    stride=4,
    map_dim=32,
    scales=(0.25, 0.45),
    ratios=(0.5, 2.0),
    rpn_dim=32,
    candidates=60,
    proposals=20,
    roi_size=5,
    roi_dim=16,
    dim=48,
    class_dim=8,
    attribute_hidden=32,
    least=2,
    most=12,
    classes=("wide", "tall"),
    attributes=("red", "green", "blue"),
)


class TinyBackbone(Backbone):
    """Three strided convolutions, normalised by groups: nothing to fold, nothing to keep in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.strides, self.channels, self.size = "tiny", (4, 8), (24, 32), 64
        self.fine = nn.Sequential(_block(3, 12), _block(12, 24))
        self.coarse = _block(24, 32)

    def normalise(self, pixels: Tensor) -> Tensor:
        return pixels.permute(0, 3, 1, 2).float() / 64 - 2

    def forward(self, pictures: Tensor) -> tuple[Tensor, ...]:
        fine = self.fine(pictures)
        return fine, self.coarse(fine)


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1), nn.GroupNorm(4, outputs), nn.ReLU())


def open_backbone(name: str, pretrained: bool = True) -> TinyBackbone:
    return TinyBackbone()


def tiny_detector(seed: int = 0) -> BottomUpNetwork:
    torch.manual_seed(seed)
    return BottomUpNetwork(CONFIG, TinyBackbone())


def boxed(rectangles: Any) -> BoxedPictures:
    """Wide and tall as classes, colours as attributes."""
    truth = rectangles.labelled
    kind, colour = (truth.things[..., REGION_ATTRIBUTES.index(name)] for name in ("kind", "colour"))
    raised = [torch.where(part == -1, torch.full_like(part, UNKNOWN), part + 1) for part in (kind, colour)]
    return BoxedPictures(truth.pixels, truth.boxes, truth.real, raised[0], raised[1][..., None])
