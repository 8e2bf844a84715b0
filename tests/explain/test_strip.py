from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from saccade.explain import Explanation, draw_explanation
from saccade.explain.draw import break_lines, fit, free_spot, pixels, size_like, width
from saccade.explain.explanation import is_content
from saccade.explain.panels.strip import PICTURE_SIDE, TILE, arrange

Make = Callable[..., Explanation]


@pytest.mark.parametrize("aspect", [0.1, 0.5, 1.0, 1.78, 6.0])
def test_no_picture_is_distorted(aspect: float) -> None:
    wide, high = size_like(aspect, TILE, TILE * 1.6)
    assert wide / high == pytest.approx(aspect, rel=0.03)
    assert max(wide, high) >= 256


def test_every_word_but_punctuation_has_one_tile_in_order(make: Make) -> None:
    words = make().words
    cells = [
        cell for row in arrange(words, [*map(is_content, words)], 1.0, (PICTURE_SIDE, PICTURE_SIDE)) for cell in row
    ]
    assert [cell.word for cell in cells] == list(range(8))
    assert all(cell.content == is_content(words[cell.word]) for cell in cells)
    assert min(c.size[0] for c in cells if c.content) > max(c.size[0] for c in cells if not c.content)


def test_tiles_of_a_long_caption_do_not_overlap(make: Make) -> None:
    words = tuple(f"word{i}" if i % 3 else "the" for i in range(40))
    rows = arrange(words, [*map(is_content, words)], 1.0, (PICTURE_SIDE, PICTURE_SIDE))
    assert sum(map(len, rows)) == 40
    assert len(rows) > 2
    for row in rows:
        assert all(b.x >= a.x + a.size[0] for a, b in itertools.pairwise(row))


@pytest.mark.parametrize(
    ("words", "height", "width", "regions"),
    [
        (("ball",), 128, 128, 1),
        (("a",), 128, 128, 1),
        ((".",), 128, 128, 2),
        (tuple(f"word{i}" for i in range(40)), 128, 128, 36),
        (("red", "ball"), 60, 400, 100),
        (("red", "ball"), 400, 60, 100),
        (("w" * 300, "ball"), 1, 1, 1),
        (("красный", "шар", "🎈", "球"), 32, 48, 5),
    ],
)
def test_any_explanation_can_be_drawn(
    make: Make, words: tuple[str, ...], height: int, width: int, regions: int
) -> None:
    strip = draw_explanation(make(words, height, width, regions))
    assert strip.mode == "RGB"
    assert max(strip.size) < 6000
    assert np.asarray(strip)[:40].min() == 255  # the margin stays white: nothing is drawn outside the sheet's column


def test_the_strip_is_lit_only_where_a_word_looks(make: Make) -> None:
    """Changing what one word looks at changes that word's tile."""
    one = make(("red", "ball"), regions=2)
    weights = one.weights.copy()
    weights[1] = weights[1, ::-1]
    first, second = np.asarray(draw_explanation(one)), np.asarray(draw_explanation(replace(one, weights=weights)))
    assert first.shape == second.shape
    assert (first != second).any()
    np.testing.assert_array_equal(first, np.asarray(draw_explanation(one)))


def test_a_title_takes_room_of_its_own(make: Make) -> None:
    plain = make()
    assert draw_explanation(replace(plain, title="rank 1")).height > draw_explanation(plain).height


def test_the_photo_is_reduced_once_for_each_size_of_tile(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What drawing costs: a long sentence needs no more reductions of the photo than a short one."""
    explanation = make(("a", "red", "ball") * 8, 90, 160)
    resize, sizes = Image.Image.resize, list[tuple[int, int]]()

    def counted(self: Image.Image, size: tuple[int, int], *args: object, **options: object) -> Image.Image:
        if self.size == (160, 90):
            sizes.append(size)
        return resize(self, size, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Image.Image, "resize", counted)
    draw_explanation(explanation)
    assert len(sizes) == len(set(sizes)) == 3  # the large picture, a content word's tile, a function word's


def test_text_is_shrunk_then_cut_to_fit() -> None:
    assert fit("ball", 32, 500) == ("ball", 32)
    text, size = fit("an unreasonably long word", 32, 120)
    assert text.endswith("…")
    assert width(text, size) <= 120


def test_lines_are_no_wider_than_the_column_and_punctuation_stays_with_its_word() -> None:
    words = (*("word",) * 30, ".")
    lines = break_lines(words, 40, 500)
    assert all(x + length <= 500 for line in lines for _, x, length in line)
    assert [i for line in lines for i, _, _ in line] == list(range(31))
    before, stop = lines[-1][-2:]
    assert stop[1] == before[1] + before[2]


def test_tags_do_not_hide_each_other() -> None:
    taken: list[tuple[int, int, int, int]] = []
    for _ in range(5):
        x, y = free_spot((100, 100, 300, 300), (120, 40), (400, 400), taken)
        assert not any(x < t[2] and x + 120 > t[0] and y < t[3] and y + 40 > t[1] for t in taken)
        taken.append((x, y, x + 120, y + 40))


def test_boxes_outside_the_picture_are_drawn_inside_it() -> None:
    left, top, right, bottom = pixels(np.array([-1.0, 0.99, 2.0, 1.0]), (100, 50))
    assert 0 <= left < right <= 99
    assert 0 <= top < bottom <= 49 + 4
