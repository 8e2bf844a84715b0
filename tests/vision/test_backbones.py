"""What holds for every backbone that has a name."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.vision.backbones.base import MODULES, Backbone, load_backbone
from saccade.vision.detectors.world import load_world_extractor

NAMES = [name for name in MODULES if name not in ("hf", "dinov2", "tuned", "tiny")]  # tested elsewhere, or a test's


@pytest.fixture(scope="module", params=NAMES)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    torch.manual_seed(0)
    return load_backbone(request.param, pretrained=False)


@pytest.fixture(scope="module")
def pixels(backbone: Backbone) -> torch.Tensor:
    return some_pixels(*(64, 96) if backbone.multiple == 1 else (4 * backbone.multiple, 6 * backbone.multiple))


def some_pixels(height: int = 64, width: int = 96) -> torch.Tensor:
    return torch.randint(0, 256, (2, height, width, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_it_tells_its_maps_truly(backbone: Backbone, pixels: torch.Tensor) -> None:
    assert not backbone.training
    assert backbone.name in NAMES
    assert list(backbone.strides) == sorted(backbone.strides)
    with torch.inference_mode():
        maps = backbone(backbone.normalise(pixels))
    height, width = pixels.shape[1:3]
    expected = [(2, c, height // s, width // s) for c, s in zip(backbone.channels, backbone.strides, strict=True)]
    assert [tuple(m.shape) for m in maps] == expected
    assert all(m.isfinite().all() and m.std() > 0 for m in maps)


def test_normalised_pictures_have_about_unit_spread(backbone: Backbone, pixels: torch.Tensor) -> None:
    found = backbone.normalise(pixels)
    assert found.shape == (2, 3, *pixels.shape[1:3])
    assert 0.4 < float(found.std()) < 1.6
    assert abs(float(found.mean())) < 0.6
    lighter = backbone.normalise(pixels.clamp(min=128))
    assert (lighter >= found).all()


def test_one_picture_does_not_change_another(backbone: Backbone, pixels: torch.Tensor) -> None:
    with torch.inference_mode():
        both, alone = (backbone(backbone.normalise(p))[-1][:1] for p in (pixels, pixels[:1]))
    torch.testing.assert_close(both, alone, rtol=1e-4, atol=1e-4)


def test_folding_changes_no_map_and_may_be_done_twice(backbone: Backbone, pixels: torch.Tensor) -> None:
    folded = copy.deepcopy(backbone)
    for part in folded.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            assert part.running_mean is not None
            part.running_mean += 0.1
    plain = copy.deepcopy(folded)
    folded.fold_normalisation()
    folded.fold_normalisation()
    assert not [m for m in folded.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert all(p.requires_grad for p in folded.parameters())  # the biases that folding makes too
    with torch.inference_mode():
        for a, b in zip(folded(folded.normalise(pixels)), plain(plain.normalise(pixels)), strict=True):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_the_worlds_backbone_is_that_of_its_extractor() -> None:
    backbone, extractor, pixels = load_backbone("world"), load_world_extractor(), some_pixels()
    with torch.inference_mode():
        detail, joined = backbone(backbone.normalise(pixels))
        maps = extractor.network.backbone.maps(backbone.normalise(pixels))
    assert torch.equal(joined, maps.joined)
    assert torch.equal(detail, maps.detail)
    assert backbone.size == extractor.config.picture_size
    assert all(p.requires_grad for p in backbone.parameters())
    with pytest.raises(SaccadeError, match=r"nowhere holds no detector"):
        load_backbone("world:nowhere")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SaccadeError, match='did you mean "mobilenet-v2"'):
        load_backbone("mobilenetv2")


def test_the_page_tells_the_same(backbone: Backbone) -> None:
    page = (Path(__file__).parents[2] / "docs" / "backbones.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{backbone.name}` |"))
    count = sum(p.numel() for p in backbone.parameters())
    told = [
        f"{count:,}",
        ", ".join(map(str, backbone.strides)),
        ", ".join(map(str, backbone.channels)),
        str(backbone.size),
    ]
    assert [cell.strip() for cell in row.split("|")[2:6]] == told
