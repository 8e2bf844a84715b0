"""Augmentation: settings that change nothing, windows that stay inside, and chance that comes from torch alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.vision.augment import AugmentConfig, augment, augment_with_boxes

AS_IT_IS = {"crop": 1.0, "mirror": 0.0, "colour": 0.0}


@pytest.fixture
def pictures() -> Tensor:
    return torch.randint(0, 256, (6, 20, 20, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def places(count: int, size: int = 32) -> Tensor:
    """Pictures that say where each of their pixels is: red the column, green the row, 8 levels apart."""
    ramp = torch.arange(size, dtype=torch.uint8) * 8
    picture = torch.stack([ramp.expand(size, size), ramp[:, None].expand(size, size), torch.zeros(size, size)], dim=2)
    return picture.to(torch.uint8).expand(count, size, size, 3)


def test_1_0_and_0_leave_a_picture_as_it_is(pictures: Tensor) -> None:
    torch.manual_seed(0)
    seen = augment(pictures, 20, AugmentConfig(**AS_IT_IS))
    assert seen.dtype == torch.uint8
    assert (seen.int() - pictures.int()).abs().max() <= 1


def test_every_picture_is_mirrored_or_none(pictures: Tensor) -> None:
    always = augment(pictures, 20, AugmentConfig(crop=1.0, mirror=1.0, colour=0.0))
    assert (always.int() - pictures.flip(2).int()).abs().max() <= 1
    many = places(400, 8)
    half = augment(many, 8, AugmentConfig(crop=1.0, mirror=0.5, colour=0.0))
    mirrored = half[:, 0, 0, 0] > half[:, 0, -1, 0]
    assert 140 < int(mirrored.sum()) < 260


@pytest.mark.parametrize("crop", [1.0, 0.95, 0.6, 0.2])
def test_a_window_stays_inside_and_keeps_at_least_its_share(crop: float) -> None:
    """Columns and rows differ from one to the next: nothing beside the picture was read, no border was stretched."""
    torch.manual_seed(1)
    seen = augment(places(200), 32, AugmentConfig(crop=crop, mirror=0.0, colour=0.0)).float()
    columns, rows = seen[:, 16, :, 0], seen[:, :, 16, 1]
    assert (columns.diff(dim=1) > 0).all()
    assert (rows.diff(dim=1) > 0).all()
    inner = 29 * 8  # from the centre of the second cell to that of the last but one, where nothing is clamped
    wide, high = ((side[:, -2] - side[:, 1]) / inner for side in (columns, rows))
    area = wide * high
    assert area.min() > crop - 0.03
    assert area.max() < 1.02
    assert (wide / high).log().abs().max() < 0.22  # 1.2 : 1
    if crop < 1:
        assert area.min() < crop + 0.1 * (1 - crop) + 0.02  # it goes as far as it may
        corners = columns[:, 1].std() + rows[:, 1].std()
        assert corners > 0.2  # and is not always in one place


def test_colours_change_and_the_scene_does_not() -> None:
    torch.manual_seed(0)
    grey = torch.full((50, 8, 8, 3), 100, dtype=torch.uint8)
    seen = augment(grey, 8, AugmentConfig(crop=1.0, mirror=0.0, colour=0.3)).float()
    assert (seen - seen[:, :1, :1]).abs().max() == 0  # a plain picture has no contrast and no saturation to change
    assert 70 <= seen.min() < 80
    assert 120 < seen.max() <= 130


def test_pictures_of_any_shape_become_squares(pictures: Tensor) -> None:
    assert augment(pictures[:, :12], 9, AugmentConfig()).shape == (6, 9, 9, 3)


def test_the_seed_of_torch_says_it_all(pictures: Tensor) -> None:
    torch.manual_seed(5)
    one = augment(pictures, 20, AugmentConfig())
    assert not torch.equal(augment(pictures, 20, AugmentConfig()), one)
    torch.manual_seed(5)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    assert torch.equal(augment(pictures, 20, AugmentConfig()), one)
    assert not torch.equal(one[0], one[1])


def test_chance_is_drawn_on_the_device_of_the_pictures(pictures: Tensor) -> None:
    """On another device (here one that computes nothing) the CPU's generator is left alone."""
    before = torch.get_rng_state()
    seen = augment(pictures.to("meta"), 20, AugmentConfig())
    assert seen.device.type == "meta"
    assert torch.equal(torch.get_rng_state(), before)
    augment(pictures, 20, AugmentConfig())
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"crop": 0.0}, "augment.crop must be more than 0 and at most 1, not 0.0"),
        ({"crop": 1.2}, "augment.crop"),
        ({"crop": float("nan")}, "augment.crop"),
        ({"mirror": -0.1}, "augment.mirror and augment.colour lie in 0..1, not -0.1 and 0.3"),
        ({"mirror": 2.0}, "augment.mirror"),
        ({"colour": 1.0}, "augment.colour"),
    ],
)
def test_settings_that_cannot_be(setting: dict[str, float], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        AugmentConfig(**setting)


def test_varied_pictures_keep_their_truth(rectangles: Any) -> None:
    torch.manual_seed(0)
    truth = rectangles.labelled
    pixels, boxes, real, _ = augment_with_boxes(truth.pixels, truth.boxes, truth.real, 64, crop=0.6, colour=0.0)
    assert pixels.dtype == torch.uint8
    assert (boxes != truth.boxes).any()
    lost = truth.real & ~real
    assert 0 < int(lost.sum()) < 0.3 * int(truth.real.sum())
    for i in range(len(pixels)):  # the middle of every box still has its thing's colour
        for j in real[i].nonzero()[:, 0].tolist():
            x, y = ((boxes[i, j, :2] + boxes[i, j, 2:]) * 32).long().tolist()
            before_x, before_y = ((truth.boxes[i, j, :2] + truth.boxes[i, j, 2:]) * 32).long().tolist()
            assert pixels[i, y, x].tolist() == truth.pixels[i, before_y, before_x].tolist()
