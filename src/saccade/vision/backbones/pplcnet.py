"""PP-LCNetV2 (PaddlePaddle, 2022), the base size: an ImageNet network made to be fast on CPUs.

A block convolves each channel alone, may weigh the channels by what the whole map holds (squeeze and excitation), and
mixes them by one or two 1 × 1 convolutions. It was trained with several depthwise kernels side by side, which are one
in the weights that are given: they have a bias in place of a batch normalisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.core.errors import SaccadeError
from saccade.core.pretrained import load_pretrained
from saccade.vision.backbones.base import Backbone, NormedConvolution, normalise_by

STEM_CHANNELS = 32


@dataclass(frozen=True)
class LightBlock:
    inputs: int
    outputs: int
    kernel: int
    stride: int
    merged: int = 0  # depthwise kernels of training that were made one
    excites: bool = False
    narrows: int = 0  # channels between the two 1 × 1 convolutions; 0: there is one
    adds: bool = False  # its input, where the shapes agree


FIRST = LightBlock(STEM_CHANNELS, 64, 3, 1)
STAGES = (  # strides 4, 8, 16, 32
    (LightBlock(64, 128, 3, 2), LightBlock(128, 128, 3, 1)),
    (LightBlock(128, 256, 3, 2), LightBlock(256, 256, 3, 1)),
    (
        LightBlock(256, 512, 5, 2, merged=2, excites=True, narrows=256),
        *[LightBlock(512, 512, 5, 1, merged=3, excites=True, narrows=256)] * 5,
    ),
    (LightBlock(512, 1024, 5, 2, merged=2), LightBlock(1024, 1024, 5, 1, merged=3, adds=True)),
)


class ReluConvolution(NormedConvolution):
    """Convolution, batch normalisation or a bias, and a rectifier."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, merged: int = 0) -> None:
        super().__init__()
        groups = inputs if kernel > 1 and inputs > 3 else 1
        self.merged = merged
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=bool(merged))
        self.norm = nn.Identity() if merged else nn.BatchNorm2d(outputs)
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        return functional.relu(self.norm(self.conv(maps)), inplace=True)


class Excitation(nn.Module):
    """Each channel times a weight in 0..1 that depends on the means of all."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image channel row column"]:
        means = maps.mean(dim=(2, 3), keepdim=True)
        weights: Tensor = self.excite(functional.relu(self.squeeze(means))).sigmoid()
        return maps * weights


class SeparableBlock(nn.Module):
    def __init__(self, block: LightBlock) -> None:
        super().__init__()
        self.adds = block.adds
        self.depthwise = ReluConvolution(block.inputs, block.inputs, block.kernel, block.stride, block.merged)
        self.weigh = Excitation(block.inputs) if block.excites else nn.Identity()
        self.narrow = ReluConvolution(block.inputs, block.narrows) if block.narrows else nn.Identity()
        self.mix = ReluConvolution(block.narrows or block.inputs, block.outputs)

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        found: Tensor = self.mix(self.narrow(self.weigh(self.depthwise(maps))))
        return found + maps if self.adds else found


class PPLCNetV2(Backbone):
    """A stem and four stages, whose maps it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.size = "pplcnetv2", 224
        self.strides, self.channels = (4, 8, 16, 32), tuple(stage[-1].outputs for stage in STAGES)
        self.stem = nn.Sequential(ReluConvolution(3, STEM_CHANNELS, 3, 2), SeparableBlock(FIRST))
        self.stages = nn.ModuleList(nn.Sequential(*map(SeparableBlock, stage)) for stage in STAGES)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise_by(pixels)

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        maps, found = self.stem(pictures), []
        for stage in self.stages:
            maps = stage(maps)
            found.append(maps)
        return tuple(found)

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        return (self.stem, *self.stages)


def open_backbone(name: str = "pplcnetv2", pretrained: bool = True) -> PPLCNetV2:
    """Raises: SaccadeError if its weights are not here."""
    if name != "pplcnetv2":
        raise SaccadeError(f'there is no backbone "{name}"; did you mean "pplcnetv2"?')
    network = PPLCNetV2()
    if pretrained:
        network.load_state_dict(_state(network, load_pretrained(name)))
    return network


def _state(network: PPLCNetV2, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The file holds no names: its tensors lie in the alphabetical order of the names that they had."""
    names = dict(_names(network))
    ordered = sorted([*names, *CLASSIFIER])
    if len(ordered) != len(tensors):
        raise SaccadeError(f"the weights of {network.name} hold {len(tensors)} tensors, {len(ordered)} were expected")
    found = dict(zip(ordered, (tensors[key] for key in sorted(tensors)), strict=True))
    counts = {name: torch.tensor(0) for name in network.state_dict() if name.endswith("num_batches_tracked")}
    return {ours: found[theirs] for theirs, ours in names.items()} | counts


CLASSIFIER = ("conv2d_67.w_0", "linear_0.w_0", "linear_0.b_0")  # behind the last map, and left out


def _names(network: PPLCNetV2) -> Iterator[tuple[str, str]]:
    """Names in the file → ours. Layers are numbered as they were made; kernels that were merged have left a gap."""
    convolutions = norms = 0
    for name, part in network.named_modules():
        if isinstance(part, ReluConvolution):
            convolutions, norms = convolutions + part.merged, norms + part.merged
            yield f"conv2d_{convolutions}.w_0", f"{name}.conv.weight"
            if part.merged:
                yield f"conv2d_{convolutions}.b_0", f"{name}.conv.bias"
            else:
                leaves = {"w_0": "weight", "b_0": "bias", "w_1": "running_mean", "w_2": "running_var"}
                yield from ((f"batch_norm2d_{norms}.{leaf}", f"{name}.norm.{ours}") for leaf, ours in leaves.items())
                norms += 1
            convolutions += 1
        elif isinstance(part, Excitation):
            for layer in ("squeeze", "excite"):
                yield f"conv2d_{convolutions}.w_0", f"{name}.{layer}.weight"
                yield f"conv2d_{convolutions}.b_0", f"{name}.{layer}.bias"
                convolutions += 1
