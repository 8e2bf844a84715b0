"""PP-LCNetV2: the tensors of a file without names find their places, and the maps are those of the graph."""

from __future__ import annotations

import dataclasses
import struct
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from saccade.core.errors import SaccadeError
from saccade.core.files import sha256
from saccade.core.pretrained import PRETRAINED
from saccade.core.weights import read_paddle
from saccade.vision.backbones.base import load_backbone

PLAIN = [  # number of convolution and normalisation, inputs, outputs, kernel, stride
    *[(0, 3, 32, 3, 2), (1, 32, 32, 3, 1), (2, 32, 64, 1, 1), (3, 64, 64, 3, 2), (4, 64, 128, 1, 1)],
    *[(5, 128, 128, 3, 1), (6, 128, 128, 1, 1), (7, 128, 128, 3, 2), (8, 128, 256, 1, 1), (9, 256, 256, 3, 1)],
    (10, 256, 256, 1, 1),
]
MERGED = [  # numbers of the depthwise convolution, the excitation's first, and both 1 × 1 with their normalisations
    *[(13, 14, 16, 13, 17, 14), (21, 22, 24, 18, 25, 19), (29, 30, 32, 23, 33, 24)],
    *[(37, 38, 40, 28, 41, 29), (45, 46, 48, 33, 49, 34), (53, 54, 56, 38, 57, 39)],
]
LAST = [(60, 61, 42), (65, 66, 46)]  # a depthwise convolution, and one of 1 × 1 with its normalisation


def norm(number: int, width: int) -> dict[str, Tensor]:
    values = torch.randn(4, width) * 0.1
    leaves = {"w_0": values[0] + 1, "b_0": values[1], "w_1": values[2], "w_2": values[3].abs() + 0.5}
    return {f"batch_norm2d_{number}.{leaf}": value for leaf, value in leaves.items()}


def kernel(number: int, outputs: int, inputs: int, side: int = 1, bias: bool = False) -> dict[str, Tensor]:
    found = {f"conv2d_{number}.w_0": torch.randn(outputs, inputs, side, side) * (2 / inputs) ** 0.5 / side}
    return found | ({f"conv2d_{number}.b_0": torch.randn(outputs) * 0.1} if bias else {})


def random_weights() -> dict[str, Tensor]:
    torch.manual_seed(0)
    found: dict[str, Tensor] = {}
    for number, inputs, outputs, side, _ in PLAIN:
        found |= kernel(number, outputs, 1 if side > 1 and number else inputs, side) | norm(number, outputs)
    for depthwise, squeeze, first, first_norm, second, second_norm in MERGED:
        width = 256 if depthwise == 13 else 512
        found |= kernel(depthwise, width, 1, 5, bias=True)
        found |= kernel(squeeze, width // 4, width, bias=True) | kernel(squeeze + 1, width, width // 4, bias=True)
        found |= kernel(first, 256, width) | norm(first_norm, 256) | kernel(second, 512, 256) | norm(second_norm, 512)
    for (depthwise, mix, mix_norm), width in zip(LAST, (512, 1024), strict=True):
        found |= kernel(depthwise, width, 1, 5, bias=True) | kernel(mix, 1024, width) | norm(mix_norm, 1024)
    head = {"linear_0.w_0": torch.zeros(1280, 10), "linear_0.b_0": torch.zeros(10)}
    return found | kernel(67, 1280, 1024) | head


def graph(x: Tensor, weights: dict[str, Tensor]) -> list[Tensor]:
    def convolve(x: Tensor, number: int, stride: int = 1) -> Tensor:
        weight = weights[f"conv2d_{number}.w_0"]
        groups = x.shape[1] // weight.shape[1]
        bias = weights.get(f"conv2d_{number}.b_0")
        return functional.conv2d(x, weight, bias, stride, weight.shape[-1] // 2, groups=groups)

    def normed(x: Tensor, number: int) -> Tensor:
        scale, bias, mean, variance = (weights[f"batch_norm2d_{number}.{k}"] for k in ("w_0", "b_0", "w_1", "w_2"))
        return functional.batch_norm(x, mean, variance, scale, bias).relu()

    maps = []
    for number, *_, stride in PLAIN:
        x = normed(convolve(x, number, stride), number)
        maps += [x] if number in (6, 10) else []
    for depthwise, squeeze, first, first_norm, second, second_norm in MERGED:
        x = convolve(x, depthwise, 2 if depthwise == 13 else 1).relu()
        means = x.mean(dim=(2, 3), keepdim=True)
        x = x * convolve(convolve(means, squeeze).relu(), squeeze + 1).sigmoid()
        x = normed(convolve(normed(convolve(x, first), first_norm), second), second_norm)
    before = normed(convolve(convolve(x, 60, 2).relu(), 61), 42)
    return [*maps, x, before + normed(convolve(convolve(before, 65).relu(), 66), 46)]


def varint(value: int) -> bytes:
    found = []
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def packed(value: Tensor) -> bytes:
    """As Paddle writes a tensor of float32."""
    head = b"\x08\x05" + b"".join(b"\x10" + varint(side) for side in value.shape)
    return struct.pack("<IQIi", 0, 0, 0, len(head)) + head + value.numpy().astype("<f4").tobytes()


def test_the_maps_are_those_of_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = random_weights()
    known = PRETRAINED["pplcnetv2"]
    path = tmp_path / known.files[0].path
    path.write_bytes(b"".join(packed(weights[name]) for name in sorted(weights)))
    monkeypatch.setenv("SACCADE_WEIGHTS", str(tmp_path))
    own = dataclasses.replace(known, files=(dataclasses.replace(known.files[0], sha256=sha256(path)),))
    monkeypatch.setitem(PRETRAINED, "pplcnetv2", own)
    backbone = load_backbone("pplcnetv2").double()
    pictures = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    with torch.inference_mode():
        expected = graph(pictures, {name: value.double() for name, value in weights.items()})
        torch.testing.assert_close(backbone(pictures), tuple(expected))
        backbone.fold_normalisation()
        torch.testing.assert_close(backbone(pictures), tuple(expected))
    path.write_bytes(packed(torch.ones(2)))
    short = dataclasses.replace(known, files=(dataclasses.replace(known.files[0], sha256=sha256(path)),))
    monkeypatch.setitem(PRETRAINED, "pplcnetv2", short)
    with pytest.raises(SaccadeError, match="the weights of pplcnetv2 hold 1 tensors, 168 were expected"):
        load_backbone("pplcnetv2")


def test_tensors_are_read_in_order_and_a_cut_file_is_refused(tmp_path: Path) -> None:
    values = [torch.arange(6.0).view(2, 3), torch.ones(300), torch.full((1, 1), 7.0)]
    whole = b"".join(map(packed, values))
    path = tmp_path / "some.pdiparams"
    path.write_bytes(whole)
    found = read_paddle(path)
    assert list(found) == ["0000", "0001", "0002"]
    assert all(torch.equal(a, b) for a, b in zip(found.values(), values, strict=True))
    for length in range(1, len(packed(values[0]))):
        path.write_bytes(whole[:length])
        with pytest.raises(SaccadeError, match=r"is damaged, or not a \.pdiparams file of float32"):
            read_paddle(path)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_give_tensors_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, place: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.pdiparams"
    whole = packed(torch.ones(2, 2))
    for data in (content, whole[:place] + content + whole[place:]):
        path.write_bytes(data)
        with suppress(SaccadeError):
            read_paddle(path)
