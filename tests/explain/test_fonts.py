"""Letters of any script, with the fonts of this test alone: a machine may have others, or none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image, ImageDraw

from saccade.explain import draw, fonts

NEW = "红狗"


def make_font(path: Path, letters: str) -> None:
    """A font in which every letter is a full square."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 1000), (1000, 1000), (1000, 0)):
        pen.lineTo(corner)
    pen.closePath()
    names = [".notdef", *(f"u{ord(letter):X}" for letter in letters)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(letter): name for letter, name in zip(letters, names[1:], strict=True)})
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupPost()
    builder.save(path)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the system's fonts are, none at first."""
    monkeypatch.setattr(fonts, "font_folders", lambda: [tmp_path])
    monkeypatch.setattr(fonts, "NOTO_CJK", "no_such_package")
    caches = (fonts._files, fonts._file_of, fonts._runs, fonts._has_raqm)
    for cache in caches:
        cache.cache_clear()
    fonts.missing.clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()
    fonts.missing.clear()


def drawn(text: str, room: float = 1e9) -> np.ndarray:
    sheet = Image.new("L", (600, 60), "white")
    draw.write(ImageDraw.Draw(sheet), (10, 40), text, 30, "black", room=room)
    return np.asarray(sheet)


def test_a_letter_is_taken_from_the_font_that_has_it(folder: Path) -> None:
    make_font(folder / "squares.ttf", NEW)
    ink = drawn(f"dog {NEW} dog") < 128
    start = 10 + draw.width("dog: ", 30)
    assert draw.width(f"dog {NEW} dog", 30) > 60
    assert ink[15:40, round(start) + 8 : round(start) + 50].all()  # a black square
    assert not fonts.missing
    assert fonts.missing_note() == ""


def test_a_letter_that_no_font_has_is_told_once_with_what_to_install() -> None:
    drawn(NEW)
    note = fonts.missing_note()
    assert "狗" in note
    assert "红" in note
    assert "saccade[fonts]" in note
    assert "fonts-noto" in note
    assert fonts.missing_note() == ""
    assert [run.text for run in fonts._runs(NEW)] == ["��"]


def test_broken_fonts_are_passed_over(folder: Path) -> None:
    (folder / "broken.ttf").write_bytes(b"no font")
    (folder / "empty.otf").touch()
    drawn(NEW)
    assert fonts.missing == set(NEW)


def test_line_breaks_and_commands_in_a_name_are_spelt_out() -> None:
    np.testing.assert_array_equal(drawn("two\nlines\x1b[1m"), drawn("two\\nlines\\x1b[1m"))
    assert draw.fit("two\nlines", 30, 1e9) == ("two\\nlines", 30)


def test_a_name_without_end_is_cut_before_it_is_measured() -> None:
    text, _ = draw.fit("w" * 1_000_000, 30, 500)
    assert text.endswith("w…")
    assert draw.width(text, 18) <= 500


@pytest.mark.parametrize(
    ("directions", "order"),
    [
        ("LLL", [0, 1, 2]),
        ("RRR", [2, 1, 0]),
        ("LRRL", [0, 2, 1, 3]),
        ("RLLR", [3, 1, 2, 0]),
        ("R RL", [3, 2, 1, 0]),  # what is neutral between two goes with them
        ("L R", [0, 1, 2]),
        ("RL ", [2, 1, 0]),
    ],
)
def test_parts_are_put_into_visual_order(directions: str, order: list[int]) -> None:
    assert fonts.visual_order([direction.strip() for direction in directions]) == order


def test_a_sentence_that_is_read_from_right_to_left_begins_at_the_right() -> None:
    words = ("כלב", "רץ", "Max", "Brown", ".")
    lines = draw.break_lines(words, 30, 1000)
    (line,) = draw.in_visual_order(lines, words, 1000)
    assert [words[index] for index, _, _ in line] == [".", "Max", "Brown", "רץ", "כלב"]
    assert line[-1][1] + line[-1][2] == pytest.approx(1000)
    assert all(x + wide <= after + 1e-6 for (_, x, wide), (_, after, _) in pairwise(line))
    latin = ("a", "dog", ".")
    assert draw.in_visual_order(draw.break_lines(latin, 30, 1000), latin, 1000) == draw.break_lines(latin, 30, 1000)


def test_without_raqm_letters_still_stand_in_visual_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_has_raqm", lambda: False)
    assert fonts._runs("שלום") == (fonts.Run("םולש", fonts.DEJAVU),)
    assert fonts._runs("שלום 12") == (fonts.Run("12 םולש", fonts.DEJAVU),)
