"""Backbones: one small interface from pictures to feature maps at several strides, whatever network is behind it.

A backbone has a name that builds it again: `efficientnet-lite0`, `mobilenet-v2`, `dinov2-s`, `world`, `tuned:FOLDER`
for that of a trained model, or `hf:HUB/NAME` for any vision backbone of transformers. Here too is what they share:
pictures resized and normalised as a network wants them, and convolutions whose batch normalisation can be folded into
them, which saves a pass over every map.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from saccade.core.errors import SaccadeError, did_you_mean

MODULES = {  # imported when first asked for
    "efficientnet-lite0": "saccade.vision.backbones.efficientnet",
    "efficientnet-lite1": "saccade.vision.backbones.efficientnet",
    "efficientnet-lite2": "saccade.vision.backbones.efficientnet",
    "mobilenet-v2": "saccade.vision.backbones.efficientnet",
    "pplcnetv2": "saccade.vision.backbones.pplcnet",
    "dinov2-s": "saccade.vision.backbones.dinov2",
    "dinov2": "saccade.vision.backbones.dinov2",
    "tuned": "saccade.vision.backbones.tuned",
    "world": "saccade.vision.detectors.world",
    "world-layers": "saccade.vision.detectors.world",
    "hf": "saccade.vision.backbones.hf",
}


class NormedConvolution(nn.Module):
    """A convolution with its batch normalisation: trained as two, used as one. What follows them is the subclass's."""

    conv: nn.Conv2d
    norm: nn.Module

    def fold(self) -> None:
        """Move the normalisation, as it is in eval mode, into the convolution: no output changes."""
        if isinstance(self.norm, nn.BatchNorm2d):
            training, learns = self.training, self.conv.weight.requires_grad
            self.conv = fuse_conv_bn_eval(self.conv.eval(), self.norm.eval()).train(training)
            self.conv.requires_grad_(learns)  # PyTorch leaves the new bias out of training
            self.norm = nn.Identity()


class FoldableNetwork(nn.Module):
    def fold_normalisation(self) -> None:
        """Make batch normalisation, as it is in eval mode, part of the convolutions, where there is any."""
        for part in self.modules():
            if isinstance(part, NormedConvolution):
                part.fold()


class Backbone(FoldableNetwork, ABC):
    """Pictures to maps, fine to coarse."""

    name: str  # what `load_backbone` takes
    strides: tuple[int, ...]  # of the maps: one cell covers stride × stride pixels
    channels: tuple[int, ...]  # of the maps
    size: int  # the side of the square pictures it was trained on
    multiple: int = 1  # the sides of its pictures must be multiples of so many pixels

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

    def set_drop_path(self, rate: float) -> None:
        """In training a picture passes a residual branch by with this chance (stochastic depth)."""
        if rate:
            raise SaccadeError(f'the backbone "{self.name}" has no drop path: only dinov2 has')

    def read_in_bfloat16(self) -> None:
        """Hold the weights in bfloat16, for reading alone; pictures and maps are float32 as before.

        Autocast would round every weight again in each pass, and add and normalise in float32.
        """
        self.bfloat16()
        self.register_forward_pre_hook(lambda _, pictures: (pictures[0].bfloat16(),))
        self.register_forward_hook(lambda _, pictures, maps: tuple(one.float() for one in maps))

    def check_sides(self, *sides: int) -> None:
        """Raises: SaccadeError if pictures of these sides are nothing for it."""
        for side in sides:
            if side % self.multiple or not side:
                near = max(round(side / self.multiple), 1) * self.multiple
                raise SaccadeError(
                    f'the backbone "{self.name}" takes pictures whose sides are multiples of {self.multiple} pixels: '
                    f"{near}, say, not {side}"
                )


def load_backbone(name: str, pretrained: bool = True) -> Backbone:
    """A backbone by name, in eval mode; without `pretrained` its weights are random and no file is needed.

    Raises: SaccadeError if there is no such backbone, or its weights cannot be had.
    """
    check_backbone(name)
    module = importlib.import_module(MODULES[name.partition(":")[0]])
    backbone: Backbone = module.open_backbone(name, pretrained)
    return backbone.eval()


def check_backbone(name: str) -> None:
    """Raises: SaccadeError if there is no such kind of backbone."""
    kind = name.partition(":")[0]
    if kind not in MODULES:
        known = ", ".join(MODULES)
        raise SaccadeError(f'there is no backbone "{name}"{did_you_mean(kind, MODULES)} (there are: {known})')


IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of red, green and blue in 0..1
IMAGENET_STD = (0.229, 0.224, 0.225)


def normalise_by(
    pixels: UInt8[Tensor, "image height width 3"],
    mean: Sequence[float] | Tensor = IMAGENET_MEAN,
    std: Sequence[float] | Tensor = IMAGENET_STD,
) -> Float[Tensor, "image 3 height width"]:
    """Bytes less the mean, divided by the spread. The memory stays channels-last, which convolutions are fastest in."""
    centre = torch.as_tensor(mean, dtype=torch.float32, device=pixels.device) * 255
    spread = torch.as_tensor(std, dtype=torch.float32, device=pixels.device) * 255
    return ((pixels.float() - centre) / spread).permute(0, 3, 1, 2)


def stretch(pixels: UInt8[Tensor, "image height width 3"], size: int) -> UInt8[Tensor, "image size size 3"]:
    """Pictures as squares, averaged where they shrink, as Pillow does it."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    floats = pixels.permute(0, 3, 1, 2).float()
    resized = functional.interpolate(floats, (size, size), mode="bilinear", antialias=True)
    return resized.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
