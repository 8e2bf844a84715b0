from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from saccade.explain import Explanation
from saccade.explain.draw import GAP
from saccade.explain.panels.strip import BAR, NAME, Cell, arrange_steps, draw_step_tile, draw_steps

Make = Callable[..., Explanation]


@pytest.fixture
def wandering(make: Make) -> Explanation:
    """Two words and two patches on white: "red" looks left, then right; "ball" looks at both, then only right."""
    steps = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]])
    plain = make(("red", "ball"), regions=2)
    return replace(plain, image=np.full((200, 200, 3), 200, np.uint8), weights=steps[1], steps=steps)


def light(picture: Image.Image) -> tuple[float, float]:
    """How bright the middles of the left and of the right patch are."""
    grey = np.asarray(picture.convert("L")).astype(float)
    high, wide = grey.shape
    return grey[round(0.42 * high), round(0.18 * wide)], grey[round(0.42 * high), round(0.82 * wide)]


def test_each_look_lights_the_box_that_it_attends_to(wandering: Explanation) -> None:
    source = Image.fromarray(wandering.image)

    def look(step: int, word: int) -> tuple[float, float]:
        return light(draw_step_tile(source, wandering, step, Cell(word, 0, source.size, True)))

    left, right = look(0, 0)
    assert left > 150 > 80 > right
    left, right = look(1, 0)
    assert right > 150 > 80 > left
    left, right = look(0, 1)
    assert left == pytest.approx(right, abs=4)


def test_an_arrow_shows_where_a_look_has_moved(wandering: Explanation) -> None:
    """From the left box's middle to the right one's: pure white in the dark between the boxes, and only then."""
    source = Image.fromarray(wandering.image)
    cell = Cell(0, 0, source.size, True)
    between = [np.asarray(draw_step_tile(source, wandering, step, cell))[:, 95:105].max() for step in (0, 1)]
    assert between[0] < 200
    assert between[1] > 240
    still = replace(wandering, steps=wandering.steps[[0, 0]])  # type: ignore[index]
    assert np.asarray(draw_step_tile(source, still, 1, cell))[:, 95:105].max() < 200


def test_rows_are_steps_and_columns_are_words(wandering: Explanation) -> None:
    """In the drawn panel, the tile of step s and word w is lit where that step of that word is."""
    (block,) = arrange_steps(wandering, 1600)
    panel = draw_steps(wandering, 1600)
    high = block[0].size[1]
    for step, word in itertools.product(range(2), range(2)):
        x, top = block[word].x, step * (high + BAR)
        left, right = light(panel.crop((x, top, x + block[word].size[0], top + high)))
        weights = wandering.steps[step, word]  # type: ignore[index]
        assert (left > 120, right > 120) == (weights[0] > 0, weights[1] > 0)


def test_the_bar_is_as_long_as_the_share_of_the_strongest_region(wandering: Explanation) -> None:
    block = arrange_steps(wandering, 1600)[0]
    panel = np.asarray(draw_steps(wandering, 1600)).astype(int)
    for word, share in ((0, 1.0), (1, 0.5)):
        cell = block[word]
        row = panel[cell.size[1] + 12, cell.x : cell.x + cell.size[0]]
        assert (row.sum(axis=1) < 600).mean() == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("count", [1, 7, 40])
@pytest.mark.parametrize("room", [1560, 3000])
def test_long_sentences_go_on_in_blocks_of_like_width(make: Make, full: Make, count: int, room: int) -> None:
    words = tuple(f"word{i}" if i % 3 else "the" for i in range(count))
    blocks = arrange_steps(full(make(words)), room)
    assert [cell.word for block in blocks for cell in block] == list(range(count))
    for block in blocks:
        assert block[0].x == NAME
        assert block[-1].x + block[-1].size[0] <= room
        assert all(b.x >= a.x + a.size[0] + GAP for a, b in itertools.pairwise(block))
    ends = [block[-1].x + block[-1].size[0] for block in blocks]
    assert min(ends) > 0.6 * max(ends)
