"""The loss of the bottom-up detector: pictures without things, no waiting for the device, half precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tiny_detector import CONFIG, TinyBackbone, boxed, tiny_detector

from saccade.vision.boxes import UNKNOWN
from saccade.vision.detectors.bottomup import BottomUpNetwork, bottomup_loss
from saccade.vision.detectors.relations import attribute_loss


def test_an_attribute_loss_is_the_mean_over_the_listed_and_none_otherwise() -> None:
    logits = torch.randn(1, 2, 5)
    surprise = -logits.log_softmax(dim=2)
    wanted = torch.tensor([[[1, 3, UNKNOWN], [UNKNOWN, UNKNOWN, UNKNOWN]]])
    there = torch.tensor([[True, True]])
    both, only = (surprise[0, 0, 1] + surprise[0, 0, 3]) / 2, surprise[0, 1, 0]
    torch.testing.assert_close(attribute_loss(logits, wanted, there), (both + 0.1 * only) / 1.1)
    torch.testing.assert_close(attribute_loss(logits, wanted, torch.tensor([[True, False]])), both)


def test_names_at_true_boxes_are_a_loss_of_their_own(rectangles: Any) -> None:
    torch.manual_seed(0)
    network = BottomUpNetwork(replace(CONFIG, name_weight=0.5), TinyBackbone()).eval()
    truth = boxed(rectangles).select(slice(0, 4))
    logits = network.classify(network.vectors(network.maps(truth.pixels), truth.boxes)).classes[..., 1:]
    known = truth.real & (truth.labels != UNKNOWN)
    wanted = 0.5 * torch.nn.functional.cross_entropy(logits[known], truth.labels[known] - 1)
    torch.testing.assert_close(bottomup_loss(network, truth, vary=False)["names"], wanted)


def test_pictures_without_anything_can_be_learned_from(rectangles: Any) -> None:
    network, truth = tiny_detector().train(), boxed(rectangles).select(slice(0, 4))
    nothing = replace(truth, real=truth.real & False)
    losses = bottomup_loss(network, nothing)
    assert all(loss.isfinite() for loss in losses.values())
    torch.stack(list(losses.values())).sum().backward()


def test_a_step_asks_the_device_for_nothing(rectangles: Any) -> None:
    """The meta device has no numbers to give: whoever waits for one fails."""
    network, truth = tiny_detector().train().to("meta"), boxed(rectangles).select(slice(0, 4)).to("meta")
    losses = bottomup_loss(network, truth)
    assert {loss.device.type for loss in losses.values()} == {"meta"}


def test_half_precision_changes_no_box_arithmetic(rectangles: Any) -> None:
    """Under autocast maps and heads are bfloat16; losses, boxes and vectors stay float32 and near the exact ones."""
    network, batch = tiny_detector().eval(), boxed(rectangles).select(slice(0, 8))
    found = []
    for half in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            losses = bottomup_loss(network, batch, vary=False)
        assert {loss.dtype for loss in losses.values()} == {torch.float32}
        found.append(torch.stack(list(losses.values())))
    found[1].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    torch.testing.assert_close(found[0], found[1], atol=0.05, rtol=0.05)
