"""Sentences without end, and words that the model does not know, in every panel and on every page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.explain import Explanation, draw_explanation, fonts
from saccade.explain.explanation import MAX_WORDS
from saccade.explain.html.figure import match_figure
from saccade.explain.panels.compose import ROOM
from saccade.explain.panels.links import draw_word_graph
from saccade.explain.panels.scene_graph import MAX_THINGS, draw_scene_graph
from saccade.explain.panels.strip import draw_steps, draw_strip
from saccade.language.parsing.scene_graph import Attribute, Object, Relation, SceneGraph

Make = Callable[..., Explanation]


def test_of_a_text_of_a_thousand_words_the_first_are_drawn(make: Make, full: Make, tmp_path: Path) -> None:
    long = full(make(tuple(f"word{i}" for i in range(1000)), 64, 64, 4))
    short = long.shortened()
    assert short.words == long.words[:MAX_WORDS]
    assert short.more == 1000 - MAX_WORDS
    assert short.shortened() is short
    assert "… and 950 more words" in short.score_note
    assert short.steps is not None
    assert long.steps is not None
    np.testing.assert_array_equal(short.steps, long.steps[:, :MAX_WORDS])
    np.testing.assert_array_equal(draw_explanation(long), draw_explanation(short))
    page = match_figure(long)
    assert page.count("<li ") == MAX_WORDS
    assert "… and 950 more words" in page
    long.save(tmp_path / "why.png")
    with Image.open(tmp_path / "why.png") as drawn:
        assert max(drawn.size) < 12_000
    assert (tmp_path / "why.png").stat().st_size < 20e6


def test_one_word_more_is_one_word(make: Make) -> None:
    assert "… and 1 more word ·" in make(("dog",) * (MAX_WORDS + 1)).shortened().score_note
    whole = make(("dog",) * MAX_WORDS)
    assert whole.shortened() is whole


def test_a_word_without_end_fits_into_every_panel(make: Make, full: Make) -> None:
    long, short = full(make(("w" * 20_000, "ball"), 64, 64, 4)), full(make(("www", "ball"), 64, 64, 4))
    assert draw_explanation(long).width <= draw_explanation(short).width + 10


def test_a_graph_of_many_things_is_cut() -> None:
    things = tuple(Object(n, f"thing{n}" + "g" * 300, n, n + 1, ("thing",)) for n in range(60))
    graph = SceneGraph(
        things,
        tuple(Attribute(thing, "r" * 300, n) for n, thing in enumerate(things)) * 12,
        tuple(Relation(one, ("o" * 300,), other) for one, other in pairwise(things)),
    )
    drawn = draw_scene_graph(graph, "word " * 1000)
    assert drawn.width < MAX_THINGS * 1200
    assert drawn.height < 6000


PANELS: dict[str, Callable[[Explanation], object]] = {
    "strip": draw_strip,
    "steps": lambda explanation: draw_steps(explanation, ROOM),
    "words": lambda explanation: draw_word_graph(explanation, 900),
}


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_says_which_words_are_unknown(
    make: Make, full: Make, panel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    real = fonts.draw_text
    monkeypatch.setattr(fonts, "draw_text", lambda *given: (written.append(given[2]), real(*given))[1])
    told = full(make(("a", "zyx", "ball")))
    PANELS[panel](told)
    assert not any("unknown" in text for text in written)
    PANELS[panel](replace(told, unknown=frozenset(["zyx"])))
    assert any(text.startswith("zyx (unk") for text in written)


def test_a_page_says_which_words_are_unknown_in_sentence_and_tiles(make: Make) -> None:
    page = match_figure(replace(make(("a", "zyx", "<unk>")), unknown=frozenset(["zyx"])))
    assert page.count("zyx (unknown)") == 3  # what is read out, the sentence, its tile
    assert page.count("&lt;unk&gt; (unknown)") == 3  # a captioner's own
