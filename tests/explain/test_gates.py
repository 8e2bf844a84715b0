from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from saccade.explain import Explanation
from saccade.explain.draw import PAPER, gate, pixels
from saccade.explain.panels.gates import gated_picture, marks
from saccade.explain.panels.strip import draw_strip

Make = Callable[..., Explanation]


@pytest.mark.parametrize("openness", [0.0, 0.1, 0.5, 0.83, 1.0])
def test_a_gates_bar_is_filled_as_far_as_it_is_open(openness: float) -> None:
    sheet = Image.new("RGB", (240, 40), PAPER)
    gate(ImageDraw.Draw(sheet), 20, 220, 10, openness, "#000000")
    row = np.asarray(sheet)[17, 22:219, 0]  # between the two ends of the frame
    assert (row == 0).mean() == pytest.approx(openness, abs=0.02)


def test_a_strip_has_a_gate_under_every_word_that_has_a_tile(make: Make) -> None:
    """Opening one word's gate changes the bar and the number below that word, and nothing else."""
    shut = replace(make(("red", "ball", ".")), word_gate=np.zeros(3))
    opened = replace(shut, word_gate=np.array([0.0, 1.0, 0.0]))
    assert draw_strip(shut).height >= draw_strip(replace(shut, word_gate=None)).height
    one, other = np.asarray(draw_strip(shut)).astype(int), np.asarray(draw_strip(opened)).astype(int)
    rows, columns = np.nonzero((one != other).any(axis=2))
    assert len(rows) > 200
    assert np.ptp(rows) < 40
    assert np.ptp(columns) < 300
    full_stop = replace(shut, word_gate=np.array([0.0, 0.0, 1.0]))
    np.testing.assert_array_equal(np.asarray(draw_strip(full_stop)), one)


def test_the_more_open_a_region_the_brighter_its_box_and_what_it_holds(make: Make) -> None:
    plain = replace(make(("red",), regions=2), image=np.full((200, 200, 3), 120, np.uint8))
    gated = replace(plain, region_gate=np.array([0.1, 0.9]))
    drawn = np.asarray(gated_picture(Image.fromarray(gated.image), gated)).astype(int)
    frames = [pixels(box, (200, 200)) for box in gated.boxes]
    inside = [drawn[(t + b) // 2, (x + r) // 2].sum() for x, t, r, b in frames]
    line = [drawn[(t + b) // 2, x].sum() for x, t, _, b in frames]
    outside = drawn[5, 100].sum()
    assert outside < inside[0] < inside[1]
    assert line[0] < line[1]
    thin, thick = marks(0.1), marks(0.9)
    assert thin[0] < thick[0]
    assert thin[1] < thick[1]
