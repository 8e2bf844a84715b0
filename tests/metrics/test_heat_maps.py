"""Heat maps become boxes: the window with the most heat for its size, and the surroundings of peaks."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.metrics.heat_maps import (
    box_scores,
    covered,
    grid_shape,
    peak_boxes,
    ranked_windows,
    windows,
)
from saccade.metrics.pointing import pointed_at


def cells(rows: int, columns: int) -> np.ndarray:
    return np.array(
        [(x / columns, y / rows, (x + 1) / columns, (y + 1) / rows) for y in range(rows) for x in range(columns)]
    )


def blob(rows: int, columns: int, *boxes: tuple[int, int, int, int]) -> np.ndarray:
    heat = np.zeros((rows, columns))
    for height, (x1, y1, x2, y2) in enumerate(reversed(boxes), start=1):
        heat[y1:y2, x1:x2] = height / len(boxes)
    return heat.ravel()


def test_only_the_cells_of_one_whole_grid_are_a_heat_map() -> None:
    assert grid_shape(cells(4, 6)) == (4, 6)
    assert grid_shape(cells(4, 6)[:-1]) is None
    assert grid_shape(np.array([[0, 0, 0.5, 1], [0.2, 0, 1, 1]])) is None
    assert grid_shape(cells(30, 30)) is None  # too many windows to try them all


def test_every_rectangle_is_a_window_and_covers_its_cells() -> None:
    found = windows(2, 3)
    assert len(found) == 3 * 6
    shares = covered(found, cells(2, 3))
    areas = (found[:, 2:] - found[:, :2]).prod(axis=1) * 6
    np.testing.assert_allclose(shares.sum(axis=1), areas, atol=1e-5)
    assert covered(np.array([[0, 0, 0.5, 0.5]]), cells(1, 2)).tolist() == [[0.5, 0]]


def test_the_best_window_holds_the_hot_cells_and_no_more() -> None:
    heat = blob(8, 8, (2, 3, 5, 6))
    (best,) = ranked_windows(heat[None], 8, 8)
    np.testing.assert_allclose(best[0], [2 / 8, 3 / 8, 5 / 8, 6 / 8])
    shared = np.clip(np.minimum(best[1:, 2:], best[0, 2:]) - np.maximum(best[1:, :2], best[0, :2]), 0, None).prod(
        axis=1
    )
    areas = (best[:, 2:] - best[:, :2]).prod(axis=1)
    assert (shared / (areas[1:] + areas[0] - shared) <= 0.5).all()


def test_boxes_of_another_origin_are_ranked_by_the_same_score() -> None:
    heat = blob(4, 4, (0, 0, 2, 2))
    boxes = np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0, 0.25, 0.25]])
    scores = box_scores(heat[None], covered(boxes, cells(4, 4)))[0]
    assert scores.argsort()[::-1].tolist() == [1, 0, 3, 2]


def test_peaks_have_the_box_of_what_hangs_together_with_them() -> None:
    one = blob(6, 6, (0, 0, 2, 3), (4, 4, 6, 6))
    assert peak_boxes(one, 6, 6) == pytest.approx(np.array([[0, 0, 2 / 6, 3 / 6], [4 / 6, 4 / 6, 1, 1]]))
    assert peak_boxes(np.ones(36), 6, 6).tolist() == [[0, 0, 1, 1]]  # nothing stands out
    weak = one * np.where(one < 1, 0.4, 1)  # its second peak is below a third of the first
    assert len(peak_boxes(weak, 6, 6)) == 1


def test_a_phrase_points_at_the_middle_of_its_strongest_surroundings() -> None:
    heat = blob(5, 5, (1, 1, 4, 4))
    assert pointed_at(heat[None], cells(5, 5)).tolist() == [[0.5, 0.5]]
    boxes = np.array([[0, 0, 0.2, 0.4], [0.5, 0.5, 1, 1]])
    assert pointed_at(np.array([[0.3, 0.7], [0.8, 0.2]]), boxes).tolist() == [[0.75, 0.75], [0.1, 0.2]]
