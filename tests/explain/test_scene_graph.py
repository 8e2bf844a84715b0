"""Scene graphs drawn: every thing has its box, longer sentences wider pictures, nothing is drawn outside."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np

from saccade.explain.panels.scene_graph import _arrows, _boxes, draw_scene_graph
from saccade.language import SceneGraph, load_parser

LONG = "a dog holding a ball in front of a house chases two cats near a tree while a man on a bench watches a bird"


def graph(text: str) -> SceneGraph:
    return load_parser("rules").parse([text])[0].graph


def test_boxes_do_not_touch_and_no_two_arrows_lie_on_each_other() -> None:
    arrows = _arrows(graph(LONG))
    boxes = list(_boxes(graph(LONG), arrows).values())
    assert len(arrows) >= 5
    assert all(right < left for (_, right), (left, _) in pairwise(boxes))
    for one, other in combinations(arrows, 2):
        apart = max(one.start, one.end) <= min(other.start, other.end) or max(other.start, other.end) <= min(
            one.start, one.end
        )
        assert apart or one.level != other.level


def test_the_margin_stays_white() -> None:
    for text in (LONG, "a dog", "hello there", "."):
        pixels = np.asarray(draw_scene_graph(graph(text), text))
        assert (pixels[:20] == 255).all()
        assert (pixels[-20:] == 255).all()
        assert (pixels[:, :20] == 255).all()
        assert (pixels[:, -20:] == 255).all()
        assert (pixels < 128).any()


def test_more_things_need_more_room() -> None:
    assert draw_scene_graph(graph(LONG), LONG).width > draw_scene_graph(graph("a dog"), "a dog").width
