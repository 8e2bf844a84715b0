from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from saccade.explain import Explanation
from saccade.explain.draw import bend, cut, middle, pixels, rgb, window
from saccade.explain.panels.links import AGAINST, GIVES, draw_links, find_hub, strongest_links

Make = Callable[..., Explanation]

CORNERS = np.array([(0.1, 0.1, 0.3, 0.3), (0.7, 0.1, 0.9, 0.3), (0.1, 0.7, 0.3, 0.9), (0.7, 0.7, 0.9, 0.9)])


@pytest.fixture
def linked(make: Make) -> Explanation:
    """Four regions in the corners; the first takes from the second, and against the third."""
    links = np.diag([9.0] * 4)
    links[0, 1], links[0, 2] = 0.8, -0.6
    plain = replace(make(("red",), regions=4), image=np.zeros((200, 200, 3), np.uint8))
    return replace(plain, boxes=CORNERS, region_links=links)


def test_links_are_ordered_by_size_whatever_their_sign_and_never_of_a_region_with_itself(linked: Explanation) -> None:
    assert strongest_links(linked) == [(0, 1, 0.8), (0, 2, -0.6)]
    assert strongest_links(linked, most=1) == [(0, 1, 0.8)]
    assert find_hub(linked) == 0


def test_a_second_link_between_two_places_is_left_out(linked: Explanation) -> None:
    boxes = np.concatenate([CORNERS, CORNERS[1:2] + 0.01])
    links = np.zeros((5, 5))
    links[0, 1], links[0, 4], links[4, 1], links[1, 0], links[2, 3] = 0.8, 0.7, 0.9, 0.6, 0.1
    told = replace(linked, boxes=boxes, weights=np.ones((1, 5)), region_links=links)
    assert strongest_links(told) == [(0, 1, 0.8), (2, 3, 0.1)]
    near = np.zeros((5, 5))
    near[4, 1] = 0.5
    assert strongest_links(replace(told, region_links=near)) == [(4, 1, 0.5)]  # there is nothing else to show


def test_arrows_run_between_the_middles_of_their_boxes_in_the_colour_of_their_sign(linked: Explanation) -> None:
    size = (500, 500)
    drawn = np.asarray(draw_links(Image.new("RGB", size), linked, strongest_links(linked))).astype(int)
    frames = [pixels(box, size) for box in linked.boxes]
    for giver, tone in ((1, GIVES), (2, AGAINST)):
        x, y = bend(middle(frames[giver]), middle(frames[0]))[20].round().astype(int)
        assert np.abs(drawn[y, x] - rgb(tone)).max() < 12
    x, y = np.array(middle(frames[3])).round().astype(int)
    assert drawn[y, x].sum() < 100  # the fourth corner takes no part


def test_the_stronger_a_link_the_thicker_its_line(linked: Explanation) -> None:
    def area(strength: float) -> int:
        links = np.zeros((4, 4))
        links[0, 1], links[2, 3] = 1.0, strength
        told = replace(linked, region_links=links)
        drawn = np.asarray(draw_links(Image.new("RGB", (500, 500)), told, strongest_links(told))).astype(int)
        return int((np.abs(drawn[300:] - rgb(GIVES)).max(axis=2) < 12).sum())

    assert area(0.1) < area(0.5) < area(0.9)


@pytest.mark.parametrize("size", [(200, 100), (100, 200), (1, 1), (640, 480)])
@pytest.mark.parametrize(
    "box", [(0.2, 0.2, 0.6, 0.7), (0, 0, 1, 1), (0.99, 0.99, 1, 1), (0.5, 0, 0.5, 1), (-1, 0.4, 2, 0.41)]
)
def test_a_cut_holds_its_box_and_stays_inside_the_picture(size: tuple[int, int], box: tuple[float, ...]) -> None:
    left, top, right, bottom = window(size, np.array(box))
    assert 0 <= left < right <= size[0] + 1e-9
    assert 0 <= top < bottom <= size[1] + 1e-9
    inner = np.clip(box, 0, 1) * (*size, *size)
    assert left <= inner[0] + 1e-6
    assert top <= inner[1] + 1e-6
    assert right >= inner[2] - 1e-6
    assert bottom >= inner[3] - 1e-6
    piece = cut(Image.new("RGB", size), np.array(box), 100)
    assert piece.height == 100
    assert piece.width / 100 == pytest.approx((right - left) / (bottom - top), rel=0.05)
