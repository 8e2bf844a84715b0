"""MobileNetV2: the file's names find their places, and the maps are those of the network written plainly."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.core.files import sha256
from saccade.core.pretrained import PRETRAINED
from saccade.vision.backbones.base import load_backbone


class Plain(nn.Module):
    """The paper's table once more, with the names of the file: a list of layers and no switch."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [step(3, 32, 3, 2)]
        inputs = 32
        table = [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]
        for expand, outputs, count, stride in table:
            for j in range(count):
                layers.append(PlainBlock(inputs, outputs, stride if j == 0 else 1, expand))
                inputs = outputs
        layers.append(step(320, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(1280, 10))

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.features(pictures)
        return found


class PlainBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        widen = [] if expand == 1 else [step(inputs, wide, 1)]
        narrow = [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*widen, step(wide, wide, 3, stride, wide), *narrow)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, maps: Tensor) -> Tensor:
        found: Tensor = self.conv(maps)
        return maps + found if self.adds else found


def step(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plain:
    """Random weights in a file of the package's form, taken for the package's."""
    torch.manual_seed(0)
    network = Plain().eval()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):  # or folding and eps would not be seen
            part.running_mean = torch.randn(part.num_features) * 0.1
            part.running_var = torch.rand(part.num_features) * 0.3 + 0.2
    known = PRETRAINED["mobilenet-v2"]
    path = tmp_path / known.files[0].path
    torch.save(network.state_dict(), path)
    monkeypatch.setenv("SACCADE_WEIGHTS", str(tmp_path))
    own = dataclasses.replace(known, files=(dataclasses.replace(known.files[0], sha256=sha256(path)),))
    monkeypatch.setitem(PRETRAINED, "mobilenet-v2", own)
    return network


def test_maps_are_those_of_the_plain_network(plain: Plain) -> None:
    backbone = load_backbone("mobilenet-v2").double()
    plain.double()  # so that a wrong eps is seen, and rounding is not
    pictures = torch.randn(2, 3, 96, 70, dtype=torch.float64)
    with torch.inference_mode():
        expected = plain(pictures)
        maps = backbone(pictures)
        torch.testing.assert_close(maps[-1], expected)
        backbone.fold_normalisation()
        torch.testing.assert_close(backbone(pictures)[-1], expected)
    assert tuple(m.shape[1] for m in maps) == backbone.channels
    assert [m.shape[-2:] for m in maps] == [(24, 18), (12, 9), (6, 5), (3, 3)]


def test_without_the_weights_a_sentence_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PRETRAINED, "mobilenet-v2", dataclasses.replace(PRETRAINED["mobilenet-v2"], folder="no_such_package/weights")
    )
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    with pytest.raises(SaccadeError, match="saccade weights get mobilenet-v2"):
        load_backbone("mobilenet-v2")
