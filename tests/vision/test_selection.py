"""The selection rule: what the reference would keep, in its order, for any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.vision.nms import class_confidence, nms, select


def made_up(images: int = 3, boxes: int = 40, classes: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    low = torch.rand(images, boxes, 2) * 0.6
    places = torch.cat([low, low + 0.1 + 0.3 * torch.rand(images, boxes, 2)], dim=2)
    return places, (3 * torch.randn(images, boxes, classes)).softmax(dim=2)


def one_by_one(boxes: Tensor, scores: Tensor, overlap: float = 0.3) -> Tensor:
    """The rule as it is told: a loop over the classes."""
    best = torch.zeros(len(boxes))
    for label in range(1, scores.shape[1]):
        kept = nms(boxes, scores[:, label], overlap)
        best = torch.where(kept, torch.maximum(best, scores[:, label]), best)
    return best


def test_all_classes_at_once_is_the_loop_over_classes() -> None:
    boxes, scores = made_up()
    found = class_confidence(boxes, scores)
    for i in range(3):
        torch.testing.assert_close(found[i], one_by_one(boxes[i], scores[i]), rtol=0, atol=0)


def test_a_floor_changes_nothing_above_it() -> None:
    boxes, scores = made_up(seed=1)
    exact, floored = class_confidence(boxes, scores), class_confidence(boxes, scores, floor=0.05)
    assert torch.equal(torch.where(exact >= 0.05, exact, 0.0), floored)
    assert (exact < 0.05).any()


def test_the_background_is_no_class_and_nothing_is_nothing() -> None:
    boxes, scores = made_up(images=1)
    scores[..., 0] = 1.0
    assert torch.equal(class_confidence(boxes, scores)[0], one_by_one(boxes[0], scores[0]))
    assert class_confidence(boxes, scores[..., :1]).tolist() == [[0.0] * 40]
    assert class_confidence(boxes[:, :0], scores[:, :0]).shape == (1, 0)
    assert class_confidence(boxes, scores, floor=2.0).tolist() == [[0.0] * 40]


CONFIDENCE = torch.tensor([[0.3, 0.1, 0.9, 0.0, 0.25], [0.1, 0.1, 0.15, 0.0, 0.05], [0.5, 0.6, 0.7, 0.9, 0.8]])


def test_in_between_they_stay_as_proposed_and_at_a_limit_the_best_come_first() -> None:
    order, real = select(CONFIDENCE, least=2, most=4)
    assert [o[r].tolist() for o, r in zip(order, real, strict=True)] == [[0, 2, 4], [2, 0], [3, 4, 2, 1]]


def test_a_fixed_number() -> None:
    order, real = select(CONFIDENCE, least=3, most=3)
    assert real.all()
    assert order.tolist() == [[0, 2, 4], [2, 0, 1], [3, 4, 2]]  # three were sure in the first: neither limit applies


def test_padding_is_never_selected() -> None:
    there = torch.tensor([True, True, False, False, False])
    order, real = select(CONFIDENCE, least=4, most=5, real=there.expand(3, 5))
    assert real.sum(dim=1).tolist() == [2, 2, 2]
    assert [set(o[r].tolist()) for o, r in zip(order, real, strict=True)] == [{0, 1}] * 3
    with pytest.raises(ValueError, match="between 5 and 3"):
        select(CONFIDENCE, least=5, most=3)


def test_the_references_choice(golden: Path) -> None:
    stored = np.load(golden / "bottomup" / "sample_decoded.npz")
    for n in range(3):
        boxes = torch.from_numpy(stored[f"img{n}_rois"][:, 1:] / stored[f"img{n}_im_scale"])
        scores = torch.from_numpy(stored[f"img{n}_scores"])
        order, real = select(class_confidence(boxes[None], scores[None], inclusive=True))
        assert order[0][real[0]].tolist() == stored[f"img{n}_keep_idx"].tolist()
