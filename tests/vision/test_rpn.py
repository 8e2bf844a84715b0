"""Proposals: suppression in rounds is suppression, anchors learn from the right boxes, lots are fair."""

from __future__ import annotations

import torch
from test_selection import made_up

from saccade.vision.boxes import pick
from saccade.vision.detectors.rpn import (
    RegionProposalNetwork,
    RPNOutput,
    anchor_boxes,
    anchor_sides,
    draw,
    draw_both,
    encode,
    mean_where,
    propose,
    rpn_loss,
)
from saccade.vision.nms import nms, nms_sorted


def test_suppression_in_rounds_is_one_by_one() -> None:
    for seed in range(5):
        boxes, scores = made_up(images=4, boxes=60, seed=seed)
        score, order = scores[..., 1].sort(dim=1, descending=True)
        boxes = pick(boxes, order)
        assert torch.equal(nms_sorted(boxes, 0.4), nms(boxes, score, 0.4))
        assert torch.equal(nms_sorted(boxes, 0.4, rounds=20), nms(boxes, score, 0.4))


def test_a_chain_of_suppression_ends_right() -> None:
    """Each overlaps its neighbours alone: the first removes the second, which then cannot remove the third."""
    x = torch.arange(9) * 0.05
    boxes = torch.stack([x, torch.zeros(9), x + 0.1, torch.ones(9)], dim=1)[None]
    assert nms_sorted(boxes, 0.3)[0].tolist() == [True, False] * 4 + [True]


def perfect_output(truth: torch.Tensor, anchors: torch.Tensor) -> RPNOutput:
    """What a perfect network would say: the thing's box, from the anchor that is nearest to it."""
    near = (anchors[:, None] - truth).abs().sum(dim=2).argmin(dim=0)
    logits, changes = torch.full((1, len(anchors)), -8.0), torch.zeros(1, len(anchors), 4)
    logits[0, near] = torch.tensor([8.0, 4.0])
    changes[0, near] = encode(truth, anchors[near])
    return RPNOutput(logits, changes, anchors)


TRUTH = torch.tensor([[0.1, 0.1, 0.4, 0.5], [0.5, 0.4, 0.95, 0.8]])
ANCHORS = anchor_boxes(8, 8, anchor_sides((0.2, 0.4), (0.5, 1.0, 2.0)))


def test_proposals_are_the_best_boxes_best_first() -> None:
    boxes, scores, real = propose(perfect_output(TRUTH, ANCHORS), candidates=50, count=10)
    torch.testing.assert_close(boxes[0, :2], TRUTH)
    assert (scores[0].diff() <= 0).all()
    assert real[0, :2].all()
    assert ((boxes >= 0) & (boxes <= 1)).all()


def test_the_right_answer_costs_little_and_the_wrong_one_much() -> None:
    real = torch.ones(1, 2, dtype=torch.bool)
    network = RegionProposalNetwork(4, 8, (0.2, 0.4), (0.5, 1.0, 2.0))
    output = network(torch.randn(1, 4, 8, 8))
    torch.testing.assert_close(output.anchors, ANCHORS)
    right = encode(TRUTH[None, 0].expand(len(ANCHORS), 4), ANCHORS)[None]
    one = TRUTH[None], torch.tensor([[True, False]])
    assert rpn_loss(RPNOutput(output.logits, right, ANCHORS), *one)[1] < 1e-5
    assert rpn_loss(RPNOutput(output.logits, right + 1, ANCHORS), *one)[1] > 1
    silent = RPNOutput(torch.full_like(output.logits, -9.0), output.changes, ANCHORS)
    objectness, _ = rpn_loss(silent, TRUTH[None], ~real)
    assert objectness < 1e-3  # nothing is there, and nothing was claimed
    assert rpn_loss(silent, TRUTH[None], real)[0] > 0.1


def test_lots_fall_on_the_eligible_and_fill_up_with_negatives() -> None:
    torch.manual_seed(0)
    positive = torch.zeros(2, 50, dtype=torch.bool)
    positive[0, :3], positive[1, :40] = True, True
    position, drawn, is_positive = draw_both(positive, ~positive, count=16, positives=8)
    assert drawn.sum(dim=1).tolist() == [16, 16]
    assert is_positive.sum(dim=1).tolist() == [3, 8]
    assert torch.equal(pick(positive, position) & drawn, is_positive)
    assert all(len(set(p[d].tolist())) == 16 for p, d in zip(position, drawn, strict=True))
    _, some = draw(positive, 5)
    assert some.sum(dim=1).tolist() == [3, 5]


def test_what_is_not_marked_may_be_anything() -> None:
    values, where = torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([True, False, True])
    assert mean_where(values, where) == 2
    assert mean_where(values, where & False) == 0


def test_every_scale_has_its_share_of_the_candidates() -> None:
    """The large anchors are all better than the small ones, and would take every place."""
    anchors = anchor_boxes(4, 4, anchor_sides((0.1, 0.4), (0.5, 1.0, 2.0)))
    sides = anchors[:, 2:] - anchors[:, :2]
    logits = torch.where(sides.prod(dim=1) > 0.05, 5.0, 1.0)[None]
    output = RPNOutput(logits, torch.zeros(1, len(anchors), 4), anchors)
    for kinds, small in (((1, 1), 0), ((2, 3), 8)):
        boxes, _, real = propose(output, candidates=16, count=16, overlap=0.99, kinds=kinds)
        area = (boxes[0, :, 2:] - boxes[0, :, :2]).prod(dim=1)[real[0]]
        assert int((area < 0.02).sum()) == small
