"""Proposals: middles and sides become boxes, the loss points at the truth, and a batch is a set of single pictures."""

from __future__ import annotations

import torch

from saccade.vision.boxes import cell_middles
from saccade.vision.detectors.world import peaks, proposal_loss, propose_peaks

TRUTH = torch.tensor(
    [[[0.10, 0.20, 0.40, 0.60], [0.55, 0.50, 0.95, 0.90]], [[0.3, 0.3, 0.7, 0.8], [0.0, 0.0, 0.0, 0.0]]]
)
REAL = torch.tensor([[True, True], [True, False]])


def perfect_maps(cells: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """The heat and boxes of a head that is always right."""
    heat = torch.full((2, cells, cells), -8.0)
    boxes = torch.zeros(2, cells, cells, 4)
    for image in range(2):
        middles = cell_middles(cells, cells, torch.device("cpu"))
        centre = (TRUTH[image, :, :2] + TRUTH[image, :, 2:]) / 2
        away = ((middles[:, :, None] - centre) ** 2).sum(dim=-1).masked_fill(~REAL[image], 9.0)
        boxes[image] = TRUTH[image, away.argmin(dim=-1)]
        for thing in REAL[image].nonzero()[:, 0].tolist():
            place = int(away[..., thing].argmin())
            heat[image, place // cells, place % cells] = 8.0
    return heat, boxes


def test_a_perfect_head_proposes_exactly_the_truth() -> None:
    heat, boxes = perfect_maps()
    found, score, kept = propose_peaks(heat, boxes, count=5, score_threshold=0.3, nms_threshold=0.7)
    assert kept.sum(dim=1).tolist() == [2, 1]
    assert (score[kept] > 0.99).all()
    torch.testing.assert_close(found[0, :2].sort(dim=0).values, TRUTH[0].sort(dim=0).values)
    torch.testing.assert_close(found[1, 0], TRUTH[1, 0])


def test_a_perfect_head_has_next_to_no_loss_and_a_wrong_one_much() -> None:
    heat, boxes = perfect_maps()
    heat_loss, box_loss = proposal_loss(heat, boxes, TRUTH, REAL)
    assert heat_loss < 0.01
    assert box_loss < 1e-4
    assert proposal_loss(-heat, boxes, TRUTH, REAL)[0] > 5
    assert proposal_loss(heat, boxes * 0.8, TRUTH, REAL)[1] > 0.3


def test_pictures_without_things_teach_that_there_is_nothing() -> None:
    heat = torch.zeros(1, 8, 8, requires_grad=True)
    boxes = torch.rand(1, 8, 8, 4)
    heat_loss, box_loss = proposal_loss(heat, boxes, torch.zeros(1, 1, 4), torch.zeros(1, 1, dtype=torch.bool))
    heat_loss.backward()
    assert heat.grad is not None
    assert (heat.grad > 0).all()
    assert box_loss == 0


def test_only_local_maxima_are_peaks() -> None:
    heat = torch.full((1, 8, 8), -5.0)
    heat[0, 2, 2], heat[0, 2, 3], heat[0, 6, 6] = 3.0, 2.0, 1.0
    boxes = torch.rand(1, 8, 8, 4)
    found, _ = peaks(heat, boxes, 2)
    torch.testing.assert_close(found[0], torch.stack([boxes[0, 2, 2], boxes[0, 6, 6]]))


def test_what_a_picture_proposes_does_not_depend_on_its_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    heat = torch.randn(3, 8, 8, generator=generator)
    low, side = torch.rand(3, 8, 8, 2, generator=generator) * 0.5, torch.rand(3, 8, 8, 2, generator=generator) * 0.5
    boxes = torch.cat([low, low + side], dim=-1)
    together = propose_peaks(heat, boxes, 6, 0.5, 0.4)
    for i in range(3):
        alone = propose_peaks(heat[i : i + 1], boxes[i : i + 1], 6, 0.5, 0.4)
        assert alone[2][0].tolist() == together[2][i].tolist()
        torch.testing.assert_close(alone[0][0][alone[2][0]], together[0][i][together[2][i]])
