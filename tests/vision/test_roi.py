"""Bilinear RoI sampling: DenseCap's numbers, exact cells in our convention, and gradients to features and boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.vision.roi import (
    Convention,
    Padding,
    densecap_points,
    densecap_theta,
    roi_bilinear,
    roi_max,
    sample,
    sample_grid,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "densecap" / "bilinear_roi.npz"


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.atleast_1d(value)) for name, value in np.load(GOLDEN).items()}


def test_densecap_is_reproduced_stage_by_stage(golden: dict[str, torch.Tensor]) -> None:
    height, width = golden["image_hw"].tolist()
    theta = densecap_theta(golden["boxes_xcycwh"], (height, width))
    torch.testing.assert_close(theta, golden["theta"], atol=1e-6, rtol=0)
    points = densecap_points(theta, golden["roi_feats"].shape[-1])
    torch.testing.assert_close(points, golden["grid_yx"], atol=1e-6, rtol=0)
    which = torch.zeros(len(points), dtype=torch.long)
    read = sample(golden["feat"][None], points.flip(-1), which, padding="zeros", align_corners=True)
    torch.testing.assert_close(read, golden["roi_feats"], atol=1e-5, rtol=0)


def test_densecap_from_boxes_in_0_to_1(golden: dict[str, torch.Tensor]) -> None:
    height, width = golden["image_hw"].tolist()
    xc, yc, w, h = golden["boxes_xcycwh"].double().unbind(dim=1)
    corners = [(xc - w / 2 - 0.5) / width, (yc - h / 2 - 0.5) / height]
    corners += [(xc + w / 2 - 0.5) / width, (yc + h / 2 - 0.5) / height]
    read = roi_bilinear(
        golden["feat"][None].double(),
        torch.stack(corners, dim=1),
        torch.zeros(len(xc), dtype=torch.long),
        convention="densecap",
        image_size=(height, width),
    )
    torch.testing.assert_close(read.float(), golden["roi_feats"], atol=1e-5, rtol=0)


def test_a_box_of_whole_cells_returns_those_cells() -> None:
    maps = torch.randn(1, 3, 8, 10)
    box = torch.tensor([[2 / 10, 3 / 8, 6 / 10, 7 / 8]])
    read = roi_bilinear(maps, box, torch.zeros(1, dtype=torch.long), size=4)
    torch.testing.assert_close(read[0], maps[0, :, 3:7, 2:6])


def test_each_region_reads_its_own_picture_in_any_order() -> None:
    maps = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 2, 6, 6)
    which = torch.tensor([3, 0, 3, 1, 0, 3])  # picture 2 has no region
    boxes = torch.tensor([[0.1, 0.2, 0.6, 0.9]]).repeat(6, 1)
    read = roi_bilinear(maps, boxes, which, size=2)
    torch.testing.assert_close(read, which.float().view(6, 1, 1, 1).expand(6, 2, 2, 2))


def test_no_region_gives_no_feature() -> None:
    assert roi_bilinear(torch.randn(2, 3, 4, 4), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)).shape == (
        0,
        3,
        7,
        7,
    )


@pytest.mark.parametrize("convention", ["centres", "densecap"])
def test_gradients_reach_features_and_boxes(convention: Convention) -> None:
    generator = torch.Generator().manual_seed(1)
    maps = torch.randn(2, 2, 5, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    boxes = torch.tensor([[0.13, 0.22, 0.71, 0.64], [0.31, 0.17, 0.93, 0.88]], dtype=torch.float64, requires_grad=True)
    which = torch.tensor([1, 0])

    def read(maps: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return roi_bilinear(maps, boxes, which, size=3, convention=convention, image_size=(40, 48))

    assert torch.autograd.gradcheck(read, (maps, boxes))
    read(maps, boxes).square().sum().backward()
    assert boxes.grad is not None
    assert (boxes.grad.abs() > 0).all()


def test_densecap_without_image_size_is_refused() -> None:
    with pytest.raises(ValueError, match="image_size"):
        roi_bilinear(
            torch.zeros(1, 1, 2, 2), torch.zeros(1, 4), torch.zeros(1, dtype=torch.long), convention="densecap"
        )


def test_max_pooling_equals_the_loop_over_regions() -> None:
    """A box rounded to cells, cut into bins as adaptive pooling cuts them; also boxes off the map and without area."""
    generator = torch.Generator().manual_seed(3)
    maps = torch.randn(3, 4, 11, 15, generator=generator)
    low = torch.rand(60, 2, generator=generator) * 0.9
    boxes = torch.cat([low, low + torch.rand(60, 2, generator=generator) * (1.1 - low)], dim=1)
    boxes[0], boxes[1] = torch.tensor([1.0, 1.0, 1.2, 1.2]), torch.tensor([0.4, 0.4, 0.4, 0.4])
    which = torch.randint(3, (60,), generator=generator)
    read = roi_max(maps, boxes, which, size=4)
    for region, box in enumerate(boxes):
        x1, y1, x2, y2 = (box * torch.tensor([15, 11, 15, 11])).round().long().tolist()
        x1, y1 = min(x1, 14), min(y1, 10)
        cut = maps[which[region], :, y1 : max(min(y2, 11), y1 + 1), x1 : max(min(x2, 15), x1 + 1)]
        assert torch.equal(read[region], torch.nn.functional.adaptive_max_pool2d(cut, 4))
    assert roi_max(maps, boxes[:0], which[:0], size=4).shape == (0, 4, 4, 4)


def test_max_pooling_teaches_the_map_and_not_the_box() -> None:
    maps = torch.randn(1, 2, 6, 6, requires_grad=True)
    boxes = torch.tensor([[0.1, 0.1, 0.9, 0.8]], requires_grad=True)
    roi_max(maps, boxes, torch.zeros(1, dtype=torch.long), size=2).sum().backward()
    assert maps.grad is not None
    assert maps.grad.sum() == 8  # one cell for each of 2 × 2 bins of 2 channels
    assert boxes.grad is None


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("align_corners", [True, False])
def test_cells_gathered_are_cells_sampled(padding: Padding, align_corners: bool) -> None:
    """Points on cells, between them, on the rim, off the map and far off; one picture without regions."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(3, 5, 6, 9, dtype=torch.float64, generator=generator)
    points = torch.randn(20, 4, 4, 2, dtype=torch.float64, generator=generator) * 1.2
    points[0], points[1], points[2], points[3] = 7.0, -1e9, 1.0, -1.0
    which = torch.randint(2, (20,), generator=generator) * 2
    read = sample(maps, points, which, padding, align_corners)
    torch.testing.assert_close(read, sample_grid(maps, points, which, padding, align_corners), rtol=0, atol=1e-13)
    assert sample(maps, points[:0], which[:0], padding, align_corners).shape == (0, 5, 4, 4)


def test_a_point_that_is_nowhere_reads_nothing_of_its_neighbours() -> None:
    points = torch.zeros(2, 1, 1, 2)
    points[0] = float("nan")
    read = sample(torch.ones(1, 3, 4, 4), points, torch.zeros(2, dtype=torch.long), "zeros", False)
    assert read[0].isnan().all()
    assert (read[1] == 1).all()
