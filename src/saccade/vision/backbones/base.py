"""Backbones: one small interface from pictures to feature maps at several strides, whatever network is behind it.

A backbone has a name that builds it again: `efficientnet-lite0`, `mobilenet-v2`, `world`, or `hf:HUB/NAME` for any
vision backbone of transformers.

Bytes to the numbers a network was trained on: each colour less its mean, divided by its spread.

A convolution with its batch normalisation: trained as two, used as one.

`fold` moves each normalisation, as it is in eval mode, into the convolution before it, which changes no output and
saves a pass over every map.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from saccade.core.errors import SaccadeError, did_you_mean

MODULES = {  # imported when first asked for
    "efficientnet-lite0": "saccade.vision.backbones.efficientnet",
    "efficientnet-lite1": "saccade.vision.backbones.efficientnet",
    "efficientnet-lite2": "saccade.vision.backbones.efficientnet",
    "mobilenet-v2": "saccade.vision.backbones.mobilenet",
    "world": "saccade.vision.backbones.world",
    "hf": "saccade.vision.backbones.hf",
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


IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of red, green and blue in 0..1
IMAGENET_STD = (0.229, 0.224, 0.225)


def normalise_by(
    pixels: UInt8[Tensor, "image height width 3"],
    mean: Sequence[float] | Tensor = IMAGENET_MEAN,
    std: Sequence[float] | Tensor = IMAGENET_STD,
) -> Float[Tensor, "image 3 height width"]:
    """The permutation is a view: the memory stays channels-last, which convolutions like best."""
    centre = torch.as_tensor(mean, dtype=torch.float32, device=pixels.device) * 255
    spread = torch.as_tensor(std, dtype=torch.float32, device=pixels.device) * 255
    return ((pixels.float() - centre) / spread).permute(0, 3, 1, 2)


class NormedConvolution(nn.Module):
    """What follows the two is the subclass's."""

    conv: nn.Conv2d
    norm: nn.Module

    def fold(self) -> None:
        if isinstance(self.norm, nn.BatchNorm2d):
            training, learns = self.training, self.conv.weight.requires_grad
            self.conv = fuse_conv_bn_eval(self.conv.eval(), self.norm.eval()).train(training)
            self.conv.requires_grad_(learns)  # PyTorch leaves the new bias out of training
            self.norm = nn.Identity()


def fold(module: nn.Module) -> None:
    """Fold every normalisation below `module`, in place."""
    for part in module.modules():
        if isinstance(part, NormedConvolution):
            part.fold()
