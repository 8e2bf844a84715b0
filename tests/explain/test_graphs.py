from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from saccade.explain import Explanation
from saccade.explain.draw import CAPTION, arch, bend, middle, pixels
from saccade.explain.panels.links import (
    MIN_TYPE,
    draw_region_graph,
    draw_word_graph,
    lay_words,
    region_edges,
    spread_out,
    strongest,
    word_edges,
)

Make = Callable[..., Explanation]


@pytest.fixture
def linked(make: Make) -> Explanation:
    """red – cube, cube – ball and blue – ball; in the picture, the two patches are linked."""
    words = ("red", "cube", "blue", "ball", ".")
    plain = replace(make(words, regions=5), image=np.zeros((200, 200, 3), np.uint8))
    weights = np.eye(5)[[0, 0, 1, 1, 1]]
    links = np.zeros((5, 5))
    for one, other, strength in ((0, 1, 1.0), (1, 3, 0.5), (2, 3, 0.8), (3, 4, 1.0), (0, 0, 9.0)):
        links[one, other] = strength
    regions = np.zeros((5, 5))
    regions[1, 0] = 0.7
    return replace(plain, weights=weights, word_links=links, region_links=regions)


def test_edges_are_the_links_between_two_words_either_way_without_punctuation(linked: Explanation) -> None:
    assert word_edges(linked) == [(1, 3, 0.5), (2, 3, 0.8), (0, 1, 1.0)]  # the strongest last, drawn on top
    assert region_edges(linked) == [(0, 1, 1.0)]
    assert region_edges(replace(linked, region_links=None)) == []


def test_of_many_links_the_strongest_and_each_nodes_own_are_kept() -> None:
    links = np.full((30, 30), 0.9)
    links[29] = links[:, 29] = 0.2
    links[29, 3] = 0.3
    edges = strongest(links, 30)
    assert [pytest.approx(0.3 / 0.9)] == [strength for *nodes, strength in edges if nodes == [3, 29]]
    assert len(edges) < 60
    assert strongest(np.zeros((4, 4)), 4) == []


def test_an_edge_is_drawn_between_the_middles_of_its_regions(linked: Explanation) -> None:
    places = linked.places
    size = (400, 400)
    black = Image.new("RGB", size)
    with_edge = np.asarray(draw_region_graph(black, linked)).astype(int)
    without = np.asarray(draw_region_graph(black, replace(linked, region_links=None))).astype(int)
    frames = [pixels(place.box, size) for place in places]
    path = bend(middle(frames[0]), middle(frames[1]), 0.1)
    for x, y in path[8:-8].round().astype(int):  # beyond the nodes themselves
        assert with_edge[y, x].sum() > 300
    rows, columns = np.nonzero((with_edge != without).any(axis=2))
    assert path[:, 0].min() - 20 < columns.min() < columns.max() < path[:, 0].max() + 20
    assert path[:, 1].min() - 20 < rows.min() < rows.max() < path[:, 1].max() + 20


def test_only_regions_that_a_word_chose_are_nodes(linked: Explanation) -> None:
    moved = linked.boxes.copy()
    moved[2:] = 0.0, 0.9, 0.1, 1.0
    black = Image.new("RGB", (400, 400))
    one, other = (np.asarray(draw_region_graph(black, e)) for e in (linked, replace(linked, boxes=moved)))
    np.testing.assert_array_equal(one, other)


def test_words_of_a_place_share_its_colour_and_its_region_stands_below_them(linked: Explanation) -> None:
    places = linked.places
    size, (line,) = lay_words(linked.words, 1492)
    drawn = np.asarray(draw_word_graph(linked, 1500)).astype(int)
    spot = {word: (x, wide) for word, x, wide in line}
    for place in places:
        ink = tuple(int(place.colour.ink[i : i + 2], 16) for i in (1, 3, 5))
        columns = np.flatnonzero((drawn == ink).all(axis=2).any(axis=0))
        for word in place.words:
            x, wide = spot[word]
            assert ((columns >= x) & (columns <= x + wide)).any()
    assert size == CAPTION


def test_a_link_is_an_arch_over_its_two_words(linked: Explanation) -> None:
    none = replace(linked, word_links=np.zeros((5, 5)))
    only = none.word_links.copy()  # type: ignore[union-attr]
    only[0, 3] = 1.0
    _, (line,) = lay_words(linked.words, 1492)
    drawn = np.asarray(draw_word_graph(replace(linked, word_links=only), 1500)).astype(int)
    middles = {word: x + wide / 2 for word, x, wide in line}
    high = drawn.shape[0] - np.asarray(draw_word_graph(none, 1500)).shape[0]
    assert high > 100  # room for the arch
    marked = np.flatnonzero((drawn[: high - 10] < 250).any(axis=2).any(axis=0))
    assert marked.min() == pytest.approx(middles[0], abs=12)
    assert marked.max() == pytest.approx(middles[3], abs=12)


def test_short_sentences_are_spaced_out_and_long_ones_made_smaller_then_broken() -> None:
    size, lines = lay_words(("red", "ball"), 1500)
    assert (size, len(lines)) == (CAPTION, 1)
    size, lines = lay_words(("word",) * 14, 1500)
    assert (MIN_TYPE <= size < CAPTION, len(lines)) == (True, 1)
    size, lines = lay_words(("word",) * 60, 1500)
    assert len(lines) > 1
    assert [i for line in lines for i, _, _ in line] == list(range(60))
    ends = [line[-1][1] + line[-1][2] for line in lines]
    assert max(ends) <= 1500
    assert min(ends) > 0.6 * max(ends)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=7))
def test_matched_regions_never_lie_on_each_other(middles: list[float]) -> None:
    lefts = spread_out(middles, [120] * len(middles), 1000)
    ordered = sorted(lefts)
    assert all(b - a >= 120 + 22 - 1e-6 for a, b in itertools.pairwise(ordered))
    assert ordered[-1] + 120 <= 1000 + 1e-6
    assert [lefts.index(x) for x in ordered] == sorted(range(len(middles)), key=lambda i: middles[i])


def test_curves_begin_and_end_where_they_should() -> None:
    for path in (bend((10, 20), (80, 50)), arch((10, 50), (80, 50), 30)):
        assert tuple(path[0]) == pytest.approx((10, 20 if path[0, 1] < 30 else 50))
        assert tuple(path[-1]) == pytest.approx((80, 50))
    assert arch((10, 50), (80, 50), 30)[:, 1].min() == pytest.approx(20, abs=0.1)
