"""What a captioner said, drawn: how sure it was of each word, and the sentinel's share where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import ImageChops

from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.explain.html.figure import match_figure
from saccade.explain.panels.strip import draw_strip

Make = Callable[..., Explanation]


def test_the_sentinels_share_is_a_bar_under_its_word(make: Make) -> None:
    """Raising one word's share changes what is below that word, and nothing else."""
    plain = replace(make(("red", "ball", ".")), generated=True)
    none = replace(plain, sentinel=np.zeros(3))
    half = replace(plain, sentinel=np.array([0.0, 0.5, 0.0]))
    assert draw_strip(none).height >= draw_strip(plain).height
    changed = ImageChops.difference(draw_strip(none), draw_strip(half)).getbbox()
    assert changed is not None
    assert changed[3] - changed[1] < 40
    assert changed[0] > draw_strip(none).width // 2


def test_a_page_tells_the_share_to_those_who_cannot_see_it(make: Make) -> None:
    figure = match_figure(replace(make(("red", "ball")), generated=True, score=-3.25, sentinel=np.array([0.25, 0.75])))
    assert "sentinel 0.25" in figure
    assert "sentinel 0.75" in figure
    assert "log-probability -3.25" in figure
    assert "framed bars: sentinel: the share of the attention that went to no region" in figure


def test_scores_are_named_for_what_they_are(make: Make) -> None:
    match = make()
    assert match.score_note == "score 0.500"
    assert replace(match, generated=True).score_note == "log-probability 0.50 · bars: how sure of each word"
    assert match.share is None
    gate = replace(match, word_gate=np.full(9, 0.5)).share
    assert gate is not None
    assert gate.name == "gate"


def test_a_word_that_looks_everywhere_alike_has_no_place(make: Make) -> None:
    """As in captioners without attention: no box is drawn for it, neither in the picture nor in its tile."""
    alike = replace(make(("red", "ball")), weights=np.full((2, 36), 1 / 36))
    assert alike.places == ()
    assert alike.outlines(0, alike.weights[0]) == []
    alone = make(("red", "ball"), regions=1)
    assert [place.words for place in alone.places] == [(0, 1)]
    assert [strength for _, strength in alone.outlines(0, alone.weights[0])] == [1.0]
    assert replace(alone, weights=np.zeros((2, 1))).places == ()


@pytest.mark.parametrize(
    ("sentinel", "sentence"),
    [(np.full(9, 1.5), r"sentinel must lie in 0\.\.1"), (np.zeros(4), r"sentinel must be \[9 words\]")],
)
def test_a_sentinel_that_is_no_share_is_refused(make: Make, sentinel: np.ndarray, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        replace(make(), sentinel=sentinel)
