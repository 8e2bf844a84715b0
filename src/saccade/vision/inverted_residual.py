"""The block that the small ImageNet networks share: widen, look around channel by channel, narrow (MobileNetV2, 2018).

EfficientNet-Lite pads as TensorFlow does: so much that the output has ⌈n / stride⌉ cells, the odd cell of padding at
the end. At stride 2 that is not PyTorch's padding, and weights trained with one read a pixel off under the other.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

Padding = Literal["same", "symmetric"]  # TensorFlow's SAME, or ⌊kernel / 2⌋ on every side


class Relu6Convolution(nn.Module):
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
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=eps, momentum=0.01)
        self.rectify = rectify
        nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu" if rectify else "linear")

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        maps = self.norm(convolve_same(maps, self.conv) if self.same else self.conv(maps))
        return functional.relu6(maps, inplace=True) if self.rectify else maps

    def fold(self) -> None:
        """Move the normalisation, as it is in eval mode, into the convolution."""
        if isinstance(self.norm, nn.BatchNorm2d):
            training, learns = self.training, self.conv.weight.requires_grad
            self.conv = fuse_conv_bn_eval(self.conv.eval(), self.norm.eval()).train(training)
            self.conv.requires_grad_(learns)  # PyTorch leaves the new bias out of training
            self.norm = nn.Identity()


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


def fold(module: nn.Module) -> None:
    """Fold every normalisation below `module`, in place."""
    for part in module.modules():
        if isinstance(part, Relu6Convolution):
            part.fold()
