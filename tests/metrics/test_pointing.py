"""The pointing game."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.metrics.pointing import inside, pointing_chance, points_at, with_neighbours

QUARTERS = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]])
RIGHT = np.array([[0.6, 0.1, 0.9, 0.9]])


def test_the_region_with_the_largest_weight_counts() -> None:
    assert points_at(np.array([0.1, 0.6, 0.2, 0.1]), QUARTERS, RIGHT)
    assert not points_at(np.array([0.6, 0.2, 0.1, 0.1]), QUARTERS, RIGHT)


def test_any_of_several_boxes_will_do_and_their_hull_will_not() -> None:
    apart = np.array([[0, 0, 0.2, 0.2], [0.8, 0.8, 1, 1]])
    assert inside(np.array([0.9, 0.9]), apart)
    assert not inside(np.array([0.5, 0.5]), apart)


def test_chance_is_the_share_of_regions_that_would_do() -> None:
    assert pointing_chance(QUARTERS, RIGHT) == pytest.approx(0.5)
    assert pointing_chance(QUARTERS, np.zeros((0, 4))) == 0.0


def test_cells_are_read_with_their_neighbours() -> None:
    """Two cells side by side outweigh a stronger one alone, and a cell inside one at the border."""
    edge = np.arange(4) / 4
    cells = np.array([[x, y, x + 0.25, y + 0.25] for y in edge for x in edge])
    weights = np.zeros((2, 16))
    weights[0, [0, 9, 10]] = 1.0, 0.9, 0.9
    weights[1] = 1.0
    alone, even = with_neighbours(weights, cells)
    assert np.argmax(alone) in (9, 10)
    assert alone[9] == pytest.approx(0.9 * (1 + np.exp(-0.5)) + np.exp(-2.5))
    assert set(np.argsort(-even)[:4]) == {5, 6, 9, 10}


def test_regions_of_a_detector_stay_as_they_are() -> None:
    weights = np.array([[0.2, 0.8], [0.5, 0.5]])
    boxes = np.array([[0, 0, 0.5, 0.5], [0.4, 0.4, 1, 0.9]])
    assert with_neighbours(weights, boxes) is weights
    alike = boxes[[0, 0]] + [[0, 0, 0, 0], [0.3, 0, 0.3, 0]]  # by chance
    assert with_neighbours(weights, alike) is weights
    assert with_neighbours(weights[:, :0], boxes[:0]).shape == (2, 0)
