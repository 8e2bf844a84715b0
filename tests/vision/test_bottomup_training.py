"""Teaching a detector: varied pictures keep their truth, the loss falls, and what is taught beats a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from saccade.vision.detectors.training import (
    UNKNOWN,
    BoxedPictures,
    attribute_loss,
    augment,
    detector_loss,
    label_names,
    load_boxed_pictures,
)
from tiny_detector import boxed, tiny_detector

from saccade.core.errors import SaccadeError
from saccade.metrics.detection import average_precision, detector_figures, found_things, grid_boxes
from saccade.vision.detectors.bottomup import BottomUpExtractor


def test_varied_pictures_keep_their_truth(rectangles: Any) -> None:
    torch.manual_seed(0)
    truth = boxed(rectangles)
    pixels, varied = augment(truth, 64, colour=0.0)
    assert pixels.dtype == torch.uint8
    assert (varied.boxes != truth.boxes).any()
    lost = truth.real & ~varied.real
    assert 0 < int(lost.sum()) < 0.3 * int(truth.real.sum())
    for i in range(len(varied)):  # the middle of every box still has its thing's colour
        for j in varied.real[i].nonzero()[:, 0].tolist():
            x, y = ((varied.boxes[i, j, :2] + varied.boxes[i, j, 2:]) * 32).long().tolist()
            before_x, before_y = ((truth.boxes[i, j, :2] + truth.boxes[i, j, 2:]) * 32).long().tolist()
            assert varied.pixels[i, y, x].tolist() == truth.pixels[i, before_y, before_x].tolist()


def test_an_attribute_loss_is_the_mean_over_the_listed_and_none_otherwise() -> None:
    logits = torch.randn(1, 2, 5)
    surprise = -logits.log_softmax(dim=2)
    wanted = torch.tensor([[[1, 3, UNKNOWN], [UNKNOWN, UNKNOWN, UNKNOWN]]])
    there = torch.tensor([[True, True]])
    both, only = (surprise[0, 0, 1] + surprise[0, 0, 3]) / 2, surprise[0, 1, 0]
    torch.testing.assert_close(attribute_loss(logits, wanted, there), (both + 0.1 * only) / 1.1)
    torch.testing.assert_close(attribute_loss(logits, wanted, torch.tensor([[True, False]])), both)


def test_pictures_without_anything_can_be_learned_from(rectangles: Any) -> None:
    network, truth = tiny_detector().train(), boxed(rectangles).select(slice(0, 4))
    nothing = BoxedPictures(truth.pixels, truth.boxes, truth.real & False, truth.labels, truth.attributes)
    losses = detector_loss(network, nothing)
    assert all(loss.isfinite() for loss in losses.values())
    torch.stack(list(losses.values())).sum().backward()


def test_a_step_asks_the_device_for_nothing(rectangles: Any) -> None:
    """The meta device has no numbers to give: whoever waits for one fails."""
    network, truth = tiny_detector().train().to("meta"), boxed(rectangles).select(slice(0, 4)).to("meta")
    losses = detector_loss(network, truth)
    assert {loss.device.type for loss in losses.values()} == {"meta"}


def test_a_few_steps_find_and_name_most_rectangles(rectangles: Any, more_rectangles: Any) -> None:
    network, truth = tiny_detector().train(), boxed(rectangles)
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3)
    losses = []
    for step in range(60):
        losses_of_step = detector_loss(network, truth.select(torch.arange(16) + 16 * (step % 6)))
        loss = torch.stack(list(losses_of_step.values())).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-9:]) < 0.5 * sum(losses[:9])
    unseen = boxed(more_rectangles)
    figures = detector_figures(BottomUpExtractor(network), unseen, counts=(4, 10))
    grid = grid_boxes(7, 3, 1)
    there = torch.ones(1, len(grid), dtype=torch.bool)
    by_grid = float(found_things(grid, there, unseen.boxes, unseen.real).sum() / unseen.real.sum())
    assert figures["recall_10"] > max(0.7, by_grid + 0.1)
    assert figures["object_top1"] > 0.8
    assert figures["attribute_top1"] > 0.8
    assert figures["map"] > 0.4


@dataclass(frozen=True)
class Labelled:
    path: np.ndarray
    boxes: np.ndarray
    names: tuple[str, ...]
    attributes: tuple[tuple[str, ...], ...]


def test_pictures_become_tensors() -> None:
    small, large = [0.1, 0.1, 0.2, 0.2], [0.0, 0.0, 1.0, 0.5]
    boxes = np.array([small, large], dtype=np.float32)
    dogs = Labelled(np.full((9, 5, 3), 7, np.uint8), boxes, ("dog", "yeti"), (("wet",), ()))
    crowd = Labelled(np.zeros((4, 4, 3), np.uint8), boxes[[0, 0, 1]], ("dog",) * 3, (("wet", "odd"), ("wet",), ()))
    empty = Labelled(np.zeros((4, 4, 3), np.uint8), np.zeros((0, 4), np.float32), (), ())
    names = label_names([dogs, crowd, empty], 2, 2)
    assert names == (("dog",), ("wet",))
    found = load_boxed_pictures([dogs, crowd, empty], *names, size=8, most_things=2)
    assert found.pixels.shape == (3, 8, 8, 3)
    assert found.real.tolist() == [[True, True], [True, True], [False, False]]
    assert found.boxes[1, 0].tolist() == large  # of a crowded picture the largest
    assert found.labels[:2].tolist() == [[UNKNOWN, 1], [1, 1]]
    assert found.attributes[1, 1].tolist() == [1, *[UNKNOWN] * 5]
    with pytest.raises(SaccadeError, match="no name stands on 9 boxes"):
        label_names([dogs], 9)


def test_average_precision_by_hand() -> None:
    scores, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])
    assert average_precision(scores, right, truths=2) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(scores[:0], right[:0], truths=2) == 0


def test_half_precision_changes_no_box_arithmetic(rectangles: Any) -> None:
    """Under autocast maps and heads are bfloat16; losses, boxes and vectors stay float32 and near the exact ones."""
    network, batch = tiny_detector().eval(), boxed(rectangles).select(slice(0, 8))
    found = []
    for half in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            losses = detector_loss(network, batch, vary=False)
        assert {loss.dtype for loss in losses.values()} == {torch.float32}
        found.append(torch.stack(list(losses.values())))
    found[1].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    torch.testing.assert_close(found[0], found[1], atol=0.05, rtol=0.05)
