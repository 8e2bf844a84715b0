"""Suppression of many lists at once is the published loop over each: in blocks, in rounds, with ties and padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.extraction import greedily_one_by_one
from saccade.vision import nms as suppression
from saccade.vision.boxes import iou, overlap_more
from saccade.vision.nms import class_confidence, nms, nms_sorted, rows_at_once, settle


def crowded(*shape: int, seed: int = 0) -> Tensor:
    """Boxes with much overlap, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(*shape, 2, dtype=torch.float64, generator=generator) * 0.5
    side = 0.1 + 0.4 * torch.rand(*shape, 2, dtype=torch.float64, generator=generator)
    return torch.cat([low, low + side], dim=-1)


def tied(*shape: int, seed: int = 0, steps: int = 6) -> Tensor:
    """Few different scores, so that most are shared by several boxes."""
    return torch.randint(steps, shape, generator=torch.Generator().manual_seed(seed)).double() / steps


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 150),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_it_is_the_loop_whatever_the_boxes(
    count: int, pictures: int, threshold: float, inclusive: bool, seed: int
) -> None:
    """Also no box and one box; more boxes than a block holds; with ties, where the first of two is the better."""
    boxes, scores = crowded(pictures, count, seed=seed) * 20, tied(pictures, count, seed=seed)
    kept = nms(boxes, scores, threshold, inclusive)
    for one, score, found in zip(boxes, scores, kept, strict=True):
        assert torch.equal(found, greedily_one_by_one(iou(one, one, inclusive), score, threshold))


def test_batches_of_any_depth_and_none() -> None:
    boxes, scores = crowded(2, 3, 30), tied(2, 3, 30)
    assert torch.equal(nms(boxes, scores, 0.3)[1, 2], nms(boxes[1, 2], scores[1, 2], 0.3))
    assert nms(boxes[:0], scores[:0], 0.3).shape == (0, 3, 30)
    assert nms_sorted(boxes[0, :, :0], 0.3).shape == (3, 0)


def test_one_box_may_remove_all_others_and_none_may() -> None:
    same = crowded(1, 1).expand(2, 200, 4)
    assert nms(same, tied(2, 200), 0.5).sum(dim=1).tolist() == [1, 1]
    assert nms(same, tied(2, 200), 1.0).all()  # nothing overlaps more than wholly
    assert nms_sorted(same, 0.5)[:, 0].all()


def test_the_first_so_many_are_right_and_the_rest_is_not_looked_at() -> None:
    boxes = crowded(3, 400)
    every = nms_sorted(boxes, 0.6)
    for most in (1, 7, 40):
        first = nms_sorted(boxes, 0.6, limit=most)
        for a, b in zip(first, every, strict=True):
            assert a.nonzero()[:most].tolist() == b.nonzero()[:most].tolist()
    assert nms_sorted(boxes, 0.6, limit=5).sum() < every.sum()


@pytest.mark.parametrize(("block", "pairs"), [(1, 1), (3, 10**4), (1000, 1)])
def test_blocks_and_parts_change_nothing(monkeypatch: pytest.MonkeyPatch, block: int, pairs: int) -> None:
    boxes, scores = crowded(4, 90), tied(4, 90)
    chances = torch.rand(4, 90, 9, generator=torch.Generator().manual_seed(1)).double()
    before = nms(boxes, scores, 0.4), class_confidence(boxes, chances, 0.4, floor=0.3)
    monkeypatch.setattr(suppression, "CPU_BLOCK_BOXES", block)
    monkeypatch.setattr(suppression, "MAX_CPU_PAIRS", pairs)
    assert torch.equal(nms(boxes, scores, 0.4), before[0])
    assert torch.equal(class_confidence(boxes, chances, 0.4, floor=0.3), before[1])


def test_what_is_held_is_bounded() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for boxes in (1, 100, 2000, 50_000):
        for device, pairs in ((cpu, suppression.MAX_CPU_PAIRS), (gpu, suppression.MAX_GPU_PAIRS)):
            block = min(suppression._block(boxes, device), boxes)
            assert rows_at_once(10**6, boxes, device) * block * boxes <= max(pairs, block * boxes)
    assert rows_at_once(0, 0, cpu) == 1


def test_rounds_settle_a_chain_from_its_beginning() -> None:
    """Each clashes with the next alone: one round is right about the first two, n rounds about n + 1."""
    clash = torch.eye(9, dtype=torch.bool).roll(1, dims=1)[None]
    alive = torch.ones(1, 9, dtype=torch.bool)
    wanted = torch.tensor([True, False] * 4 + [True])
    assert torch.equal(settle(clash, alive)[0], wanted)
    for rounds in range(1, 9):
        found = settle(clash, alive, rounds)[0]
        assert torch.equal(found[: rounds + 1], wanted[: rounds + 1])
    assert settle(clash, alive & (torch.arange(9) != 0))[0].tolist() == [False, True] * 4 + [False]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 80), st.integers(0, 12), st.sampled_from([0.0, 0.2, 0.6]), st.integers(0, 99))
def test_every_class_is_suppressed_by_its_own_scores(count: int, classes: int, floor: float, seed: int) -> None:
    boxes, chances = crowded(3, count, seed=seed), tied(3, count, classes + 1, seed=seed)
    chances[1, count // 2 :] = 0  # a picture with fewer boxes than the others
    found = class_confidence(boxes, chances, 0.3, floor=floor)
    for picture in range(3):
        overlap, worth = iou(boxes[picture], boxes[picture]), torch.zeros(count, dtype=torch.float64)
        for label in range(1, classes + 1):
            score = chances[picture, :, label]
            counted = torch.where(greedily_one_by_one(overlap, score, 0.3) & (score >= floor), score, 0.0)
            worth = torch.maximum(worth, counted)
        assert torch.equal(found[picture], worth)


@pytest.mark.parametrize("inclusive", [False, True])
def test_more_overlap_than_a_threshold_is_iou_compared(inclusive: bool) -> None:
    """To the last bit: at thresholds that some pairs have exactly; boxes without area or turned inside out, and NaN."""
    boxes = crowded(2, 40).float() * 20
    boxes[:, 0, 2:], boxes[:, 1, 2:], boxes[:, 2] = boxes[:, 0, :2], boxes[:, 1, :2] - 3, float("nan")
    table = iou(boxes, boxes, inclusive)
    for threshold in (0.0, 0.3, *table[0, 5, 6:12].tolist()):
        assert torch.equal(overlap_more(boxes, boxes, threshold, inclusive), table > threshold)
