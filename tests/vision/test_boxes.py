"""Box arithmetic on known boxes, and non-maximum suppression against a plain loop and DenseCap's stored picks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.vision.boxes import area, as_boxes, clip, iou, jitter, paired_iou, valid
from saccade.vision.nms import best, nms

GOLDEN = Path(__file__).parents[1] / "golden" / "densecap" / "bilinear_roi.npz"


def random_boxes(count: int, seed: int = 0) -> torch.Tensor:
    corners = torch.rand(count, 2, 2, generator=torch.Generator().manual_seed(seed))
    return torch.cat([corners.amin(dim=1), corners.amax(dim=1)], dim=1)


def test_iou_of_boxes_worked_out_by_hand() -> None:
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.75, 0.5], [0.5, 0.5, 1.0, 1.0], [0.2, 0.2, 0.2, 0.2]])
    expected = torch.tensor([[1, 1 / 3, 0, 0], [1 / 3, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0.0]])
    torch.testing.assert_close(iou(boxes, boxes), expected)
    torch.testing.assert_close(paired_iou(boxes[:2], boxes[1:3]), torch.tensor([1 / 3, 0.0]))


def test_a_box_turned_inside_out_has_no_area_and_is_not_valid() -> None:
    boxes = torch.tensor([[0.6, 0.1, 0.4, 0.3], [0.1, 0.1, 0.4, 0.3], [0.1, float("nan"), 0.4, 0.3]])
    assert area(boxes)[0] == 0
    assert valid(boxes).tolist() == [False, True, False]


def test_inclusive_boxes_count_both_end_pixels() -> None:
    assert area(torch.tensor([3.0, 5.0, 3.0, 6.0]), inclusive=True) == 2


def test_nms_equals_the_loop_over_every_picture_of_a_batch() -> None:
    boxes = torch.stack([random_boxes(40, seed) for seed in range(3)])
    scores = torch.rand(3, 40, generator=torch.Generator().manual_seed(9))
    kept = nms(boxes, scores, 0.4)
    for picture in range(3):
        stay: list[int] = []
        for i in scores[picture].argsort(descending=True).tolist():
            if all(iou(boxes[picture, [i]], boxes[picture, [j]]) <= 0.4 for j in stay):
                stay.append(i)
        assert kept[picture].nonzero()[:, 0].tolist() == sorted(stay)
        assert best(scores[picture], kept[picture], 5).tolist() == stay[:5]


def test_nms_picks_what_densecap_picks() -> None:
    golden = np.load(GOLDEN)
    boxes, scores = torch.from_numpy(golden["x1y1x2y2"]), torch.from_numpy(golden["scores"])
    kept = nms(boxes, scores, float(golden["nms_thresh"]), inclusive=True)
    assert best(scores, kept, int(golden["nms_max"])).tolist() == golden["nms_pick"].tolist()


def test_clipping_keeps_the_inner_part() -> None:
    assert clip(torch.tensor([-0.2, 0.1, 0.5, 1.4])).tolist() == pytest.approx([0, 0.1, 0.5, 1])


@pytest.mark.parametrize(
    ("boxes", "sentence"),
    [
        (np.zeros((2, 5)), r"page: boxes must be of shape \[region, 4\], not \[2, 5\]"),
        (np.zeros((0, 4)), "page: there is no box"),
        (np.array([[0, 0, 1, 1], [0.5, 0, 0.2, 1]]), r"page: box 1 is \(0.5, 0, 0.2, 1\), expected x1 < x2"),
        (np.array([[0, 0, 40, 30]]), "all in 0..1"),
        (np.array([[0, 0, np.nan, 1]]), "box 0 is"),
    ],
)
def test_boxes_from_outside_are_checked(boxes: np.ndarray, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        as_boxes(boxes, "page")


def test_jittered_boxes_still_overlap_theirs() -> None:
    torch.manual_seed(0)
    boxes = torch.tensor([[0.2, 0.3, 0.5, 0.6]]).repeat(200, 1)
    moved = jitter(boxes, 0.12)
    assert ((moved - boxes).abs() <= 0.12 * 0.3 + 1e-6).all()
    assert (moved != boxes).all()
