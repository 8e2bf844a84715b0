"""Backbones: one small interface from pictures to feature maps at several strides, whatever network is behind it.

A backbone has a name that builds it again: `efficientnet-lite0`, `mobilenet-v2`, `world`, or `hf:HUB/NAME` for any
vision backbone of transformers.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod

from jaxtyping import Float, UInt8
from torch import Tensor, nn

from saccade.errors import SaccadeError, did_you_mean

MODULES = {  # imported when first asked for
    "efficientnet-lite0": "saccade.vision.efficientnet",
    "efficientnet-lite1": "saccade.vision.efficientnet",
    "efficientnet-lite2": "saccade.vision.efficientnet",
    "mobilenet-v2": "saccade.vision.mobilenet",
    "world": "saccade.vision.world_backbone",
    "hf": "saccade.vision.hub_backbone",
}


class Backbone(nn.Module, ABC):
    """Pictures to maps, fine to coarse."""

    name: str  # what `load_backbone` takes
    strides: tuple[int, ...]  # of the maps: one cell covers stride × stride pixels
    channels: tuple[int, ...]  # of the maps
    size: int  # the side of the square pictures it was trained on

    @abstractmethod
    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        """Bytes as the network wants them."""

    @abstractmethod
    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        """One map for each of `strides`."""

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        """The network from its input to its output, in pieces of which the first can be left untrained."""
        return (self,)

    def fold_normalisation(self) -> None:
        """Make batch normalisation, as it is in eval mode, part of the convolutions, where a backbone has any."""


def load_backbone(name: str, pretrained: bool = True) -> Backbone:
    """A backbone by name, in eval mode; without `pretrained` its weights are random and no file is needed."""
    kind, _, argument = name.partition(":")
    if kind not in MODULES:
        known = ", ".join(MODULES)
        raise SaccadeError(f'there is no backbone "{name}"{did_you_mean(kind, MODULES)} (there are: {known})')
    module = importlib.import_module(MODULES[kind])
    backbone: Backbone = module.open_backbone(argument or kind, pretrained)
    return backbone.eval()
