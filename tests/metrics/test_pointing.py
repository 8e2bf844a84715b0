"""The pointing game."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.metrics.pointing import inside, pointing_chance, points_at

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
