"""Overlap of spans and recall of moments, right pairs of boxes, heat maps that point, clicks."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.metrics.clicks import grouped_auc, log_loss
from saccade.metrics.detection import average_precision
from saccade.metrics.moments import moment_recall, temporal_iou, temporal_nms
from saccade.metrics.pointing import attention_correctness, map_points_at
from saccade.metrics.relations import right_pairs


def test_spans_overlap_by_what_they_share_and_apart_by_nothing() -> None:
    one, other = np.array([[0.0, 4], [0, 1], [2, 2]]), np.array([2.0, 6])
    assert temporal_iou(one, other).tolist() == [pytest.approx(1 / 3), 0, 0]
    assert temporal_iou(one, other, hull=True).tolist() == [pytest.approx(1 / 3), pytest.approx(-1 / 6), 0]


def test_a_moment_is_recalled_if_one_of_the_best_spans_overlaps_it_enough() -> None:
    predicted = [np.array([[0.0, 2], [4, 8], [5, 8]]), np.array([[0.0, 10]])]
    truth = np.array([[4.0, 8], [0, 5]])
    found = moment_recall(predicted, truth, counts=(1, 2), overlaps=(0.5, 0.7))
    assert found == {"R@1,IoU=0.5": 0.5, "R@1,IoU=0.7": 0.0, "R@2,IoU=0.5": 1.0, "R@2,IoU=0.7": 0.5}
    assert moment_recall([], np.zeros((0, 2))) == {f"R@{n},IoU={m}": 0.0 for n in (1, 5) for m in (0.3, 0.5, 0.7)}


def test_of_spans_that_overlap_much_the_best_stays() -> None:
    spans = np.array([[0.0, 10], [1, 10], [20, 30], [0, 6]])
    assert temporal_nms(spans, 0.7).tolist() == [True, False, True, True]
    assert temporal_nms(spans, 0.5).tolist() == [True, False, True, False]


def test_a_pair_is_right_once_and_only_if_both_boxes_overlap() -> None:
    box, far, half = [0.0, 0, 1, 1], [5.0, 5, 6, 6], [0.0, 0, 0.5, 1]
    true = np.array([[*box, *far]])
    found = np.array([[*box, *box], [*half, *far], [*box, *far], [*box, *far]])
    right = right_pairs(np.zeros(4), found, np.zeros(1), true)
    assert right.tolist() == [False, True, False, False]
    assert right_pairs(np.array([1, 1, 1, 0]), found, np.zeros(1), true).tolist() == [False, False, False, True]
    assert right_pairs(np.zeros(4), found, np.zeros(0), np.zeros((0, 8))).tolist() == [False] * 4
    pixels = np.array([[0.0, 0, 0, 0, 9, 9, 9, 9]])  # one pixel each, the last one included
    assert right_pairs(np.zeros(1), pixels, np.zeros(1), pixels, inclusive=True).tolist() == [True]
    assert average_precision(right, 1, interpolated=False) == 0.5


def test_precision_without_interpolation_is_that_at_the_hits() -> None:
    right = np.array([False, True, False, True])
    assert average_precision(right, 2, interpolated=False) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert average_precision(np.array([False, False, True, True]), 2) == pytest.approx(1 / 2)
    assert average_precision(np.array([False, False, True, True]), 2, interpolated=False) == pytest.approx(5 / 12)


def test_a_heat_map_points_at_its_largest_cell_and_has_mass_in_boxes() -> None:
    heat = np.zeros((3, 4))
    heat[1, 2] = heat[2, 3] = 2.0
    assert map_points_at(heat, np.array([[2.0, 1, 2, 1]]))
    assert not map_points_at(heat, np.array([[3.0, 2, 4, 3]]))
    assert attention_correctness(heat, np.array([[2.0, 0, 3, 2], [0, 0, 2, 3]])) == 0.5
    assert attention_correctness(heat, np.array([[2.0, 0, 3, 2], [2, 1, 4, 3]])) == 1.5  # where both are, twice
    assert attention_correctness(0 * heat, np.array([[2.0, 0, 3, 2]])) == 0


def test_users_who_clicked_on_all_or_nothing_do_not_count() -> None:
    users = np.array([0, 0, 1, 1, 1, 2])
    clicked = np.array([0, 0, 1, 0, 1, 1])
    scores = np.array([0.9, 0.9, 0.8, 0.5, 0.4, 0.1])
    assert grouped_auc(users, clicked, scores) == (0.5, 3)
    assert grouped_auc(users[:2], clicked[:2], scores[:2]) == (0.5, 0)
    assert log_loss(np.array([1, 0]), np.array([0.5, 0.5])) == pytest.approx(np.log(2))
    assert log_loss(np.array([1]), np.array([0.0])) == pytest.approx(-np.log(1e-7))
