from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from saccade.explain import Explanation, draw_explanation
from saccade.explain.panels.compose import AFFINITY, GATES, GRAPHS, STEPS, draw_panel, find_panels
from saccade.explain.panels.strip import draw_strip

Make = Callable[..., Explanation]


def test_each_kind_of_explanation_gets_its_panel(make: Make, full: Make) -> None:
    plain, told = make(), full(make())
    assert find_panels(plain) == ()
    assert find_panels(replace(plain, steps=told.steps)) == (STEPS,)
    assert find_panels(replace(plain, word_gate=told.word_gate, region_gate=told.region_gate)) == (GATES,)
    assert find_panels(replace(plain, word_links=told.word_links, region_links=told.region_links)) == (GRAPHS,)
    assert find_panels(replace(plain, region_links=told.region_links)) == (AFFINITY,)
    assert find_panels(told) == (STEPS, GATES, GRAPHS)


def test_the_strip_stands_on_top_and_the_panels_below(make: Make, full: Make) -> None:
    plain, told = make(), full(make())
    np.testing.assert_array_equal(np.asarray(draw_explanation(plain)), np.asarray(draw_strip(plain)))
    strip, whole = np.asarray(draw_strip(told)), np.asarray(draw_explanation(told))
    np.testing.assert_array_equal(whole[: strip.shape[0] - 4, : strip.shape[1]], strip[:-4])
    heights = [draw_panel(p, told, strip.shape[1] - 112).height for p in find_panels(told)]
    assert whole.shape[0] == strip.shape[0] + sum(heights)


@pytest.mark.parametrize(
    ("words", "height", "width", "regions"),
    [
        (("ball",), 128, 128, 1),
        ((".",), 128, 128, 2),
        (tuple(f"word{i}" for i in range(30)), 128, 128, 36),
        (("red", "ball"), 60, 400, 100),
        (("red", "ball"), 400, 60, 100),
        (("w" * 300, "ball"), 1, 1, 1),
        (("красный", "шар", "🎈", "球"), 32, 48, 5),
    ],
)
def test_any_explanation_can_be_drawn_with_all_its_panels(
    make: Make, full: Make, words: tuple[str, ...], height: int, width: int, regions: int
) -> None:
    told = full(make(words, height, width, regions))
    assert (AFFINITY in find_panels(replace(told, word_links=None))) == (regions > 1)
    for explanation in (told, replace(told, word_links=None)):
        picture = draw_explanation(explanation)
        assert picture.mode == "RGB"
        assert max(picture.size) < 12000
        assert np.asarray(picture)[:, -40:].min() == 255  # the margin stays white


def test_links_and_gates_of_nothing_are_drawn_too(make: Make) -> None:
    plain = make(("red", "ball"), regions=4)
    for nothing in (
        {"steps": np.zeros((2, 2, 4))},
        {"word_gate": np.zeros(2), "region_gate": np.zeros(4)},
        {"word_links": np.zeros((2, 2)), "region_links": np.zeros((4, 4))},
        {"region_links": np.zeros((4, 4)), "region_score": np.zeros(4)},
    ):
        assert draw_explanation(replace(plain, **nothing)).height > draw_explanation(plain).height
