"""What the small ImageNet networks share: blocks that widen, look around channel by channel and narrow (MobileNetV2,
2018), and stages of them between a stem and a head.

EfficientNet-Lite pads as TensorFlow does: so much that the output has ⌈n / stride⌉ cells, the odd cell of padding at
the end. At stride 2 that is not PyTorch's padding, and weights trained with one read a pixel off under the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.backbones import Backbone
from saccade.vision.convolution import NormedConvolution, fold

Padding = Literal["same", "symmetric"]  # TensorFlow's SAME, or ⌊kernel / 2⌋ on every side
STEM, HEAD = 32, 1280  # channels
LAST_AT_STRIDE = (1, 2, 4)  # stages whose output is the last of strides 4, 8 and 16; the head's is that of 32


class Relu6Convolution(NormedConvolution):
    """Convolution, batch normalisation and, unless told otherwise, a rectifier that ends at 6."""

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
    a row of zeros in front of the kernel rather than by a padded copy of the map: the same sums, and two to four
    times as quick. GPUs have fast kernels for odd sizes only.
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
class Stage:
    """Blocks of one shape. The first of them has the stride."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    outputs: int


class StagedNetwork(Backbone):
    """A stem, seven stages of blocks and a head: maps of strides 4, 8, 16 and 32, the last of them the head's."""

    def __init__(self, name: str, size: int, stages: Sequence[Stage], padding: Padding, eps: float) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self.stem = Relu6Convolution(3, STEM, 3, 2, padding=padding, eps=eps)
        self.stages = nn.ModuleList()
        inputs = STEM
        for stage in stages:
            blocks = nn.Sequential()
            for i in range(stage.repeats):
                stride = stage.stride if i == 0 else 1
                blocks.append(InvertedResidual(inputs, stage.outputs, stage.kernel, stride, stage.expand, padding, eps))
                inputs = stage.outputs
            self.stages.append(blocks)
        self.head = Relu6Convolution(inputs, HEAD, eps=eps)
        self.strides = (4, 8, 16, 32)
        self.channels = (*(stages[i].outputs for i in LAST_AT_STRIDE), HEAD)

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

    @property
    def block_names(self) -> list[str]:
        """The blocks' places in the state, in order: those who bring weights number them through."""
        return [f"stages.{i}.{j}" for i, stage in enumerate(self.stages) for j in range(len(stage))]  # type: ignore[arg-type]

    def fold_normalisation(self) -> None:
        fold(self)
