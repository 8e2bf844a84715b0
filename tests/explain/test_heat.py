from __future__ import annotations

import numpy as np

from saccade.explain.draw import brightest, colour_table, illuminate, spread

BOX = np.array([[0.25, 0.25, 0.75, 0.75]])


def test_light_lies_in_the_box_and_nowhere_else() -> None:
    heat = spread(np.array([0.3]), BOX, (64, 64))
    assert heat[32, 32] == 1.0
    assert heat[:8].max() == heat[:, :8].max() == heat[-8:].max() == heat[:, -8:].max() == 0.0


def test_soft_edges_keep_the_area_of_the_box() -> None:
    heat = spread(np.array([1.0]), BOX, (200, 120))
    np.testing.assert_allclose(heat.mean(), 0.25, rtol=0.02)


def test_overlapping_boxes_add() -> None:
    boxes = np.array([[0.0, 0.0, 0.6, 1.0], [0.4, 0.0, 1.0, 1.0]])
    heat = spread(np.array([1.0, 1.0]), boxes, (100, 100))
    np.testing.assert_allclose(heat[50, 50], 1.0, atol=1e-6)
    np.testing.assert_allclose(heat[50, [20, 80]], 0.5, atol=1e-6)


def test_boxes_that_overlap_may_each_be_as_bright_as_they_weigh() -> None:
    boxes = np.array([[0.0, 0.0, 0.6, 1.0], [0.4, 0.0, 1.0, 1.0]])
    heat = brightest(np.array([0.9, 0.4]), boxes, (100, 100))
    np.testing.assert_allclose(heat[50, [20, 50, 80]], [0.9, 0.9, 0.4], atol=1e-6)
    assert brightest(np.zeros(0), np.zeros((0, 4)), (8, 8)).max() == 0


def test_twice_the_weight_is_twice_the_light() -> None:
    boxes = np.array([[0.0, 0.0, 0.4, 1.0], [0.6, 0.0, 1.0, 1.0]])
    heat = spread(np.array([2.0, 1.0]), boxes, (50, 50))
    np.testing.assert_allclose(heat[25, 40] / heat[25, 10], 0.5, atol=1e-6)


def test_no_weight_gives_no_light() -> None:
    assert spread(np.zeros(1), BOX, (32, 32)).max() == 0.0
    assert spread(np.array([-1.0]), BOX, (32, 32)).max() == 0.0
    both = spread(np.array([1.0, 0.0]), np.array([[0, 0, 0.3, 0.3], [0.7, 0.7, 1, 1]]), (64, 64))
    assert both[40:, 40:].max() == 0.0


def test_a_box_without_area_still_shows() -> None:
    assert spread(np.ones(1), np.array([[0.5, 0.5, 0.5, 0.5]]), (64, 64)).max() == 1.0


def test_light_shows_the_picture_and_darkness_hides_it() -> None:
    picture = np.full((4, 4, 3), 200, dtype=np.uint8)
    lit, dark = illuminate(picture, np.ones((4, 4))), illuminate(picture, np.zeros((4, 4)))
    assert np.abs(lit.astype(int) - 200).max() <= 12
    assert dark.max() < 80


def test_opacity_falls_as_heat_rises() -> None:
    _, opacity = colour_table()
    assert (np.diff(opacity.astype(int)) <= 0).all()


def test_light_flows_evenly_between_the_cells_of_a_grid() -> None:
    """Brightest at the middle of the strongest cell, which is where a word points, and without a step anywhere."""
    edge = np.arange(4) / 4
    cells = np.array([[x, y, x + 0.25, y + 0.25] for y in edge for x in edge])
    weights = np.full(16, 0.2)
    weights[[6, 9]] = 1.0, 0.8
    heat = spread(weights, cells, (100, 100))
    row, column = np.unravel_index(np.argmax(heat), heat.shape)
    assert (abs(row - 37), abs(column - 62)) <= (1, 1)
    assert max(np.abs(np.diff(heat, axis=axis)).max() for axis in (0, 1)) < 0.06
