from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.explain.draw import PALETTE
from saccade.explain.explanation import is_content, overlap, shares
from saccade.explain.html.figure import match_figure

Make = Callable[..., Explanation]
LEFT = (0.1, 0.3, 0.4, 0.7)  # where the first words of the toy match look


def test_words_that_look_at_one_object_share_a_place(make: Make) -> None:
    places = make().places
    assert [make().label(place) for place in places] == ["red cube left", "blue ball"]


def test_nearly_equal_boxes_are_one_place(make: Make) -> None:
    explanation = make(("red", "cube"), regions=2)
    boxes = np.array([[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.5, 0.52]])
    explanation = replace(explanation, boxes=boxes, weights=np.eye(2))
    assert len(explanation.places) == 1


def test_words_that_look_nowhere_have_no_place(make: Make) -> None:
    explanation = make()
    assert replace(explanation, weights=np.zeros_like(explanation.weights)).places == ()


def test_there_are_never_more_places_than_colours(make: Make) -> None:
    count = len(PALETTE) + 5
    corner = np.linspace(0, 0.9, count)
    boxes = np.stack([corner, corner, corner + 0.05, corner + 0.05], axis=1)
    explanation = make(tuple(f"word{i}" for i in range(count)), regions=count)
    places = replace(explanation, boxes=boxes, weights=np.eye(count)).places
    assert len({place.colour for place in places}) == len(places) == len(PALETTE)


def test_a_repeated_word_is_named_once(make: Make) -> None:
    explanation = make(("cube", "big", "cube", "ball"), regions=1)
    (place,) = explanation.places
    assert explanation.label(place) == "cube big · ball"


def test_function_words_are_not_content() -> None:
    assert [w for w in ("a", "The", "of", ".", "'s", "red", "left", "behind", "12") if is_content(w)] == [
        "red",
        "left",
        "behind",
        "12",
    ]


def test_overlap_of_boxes() -> None:
    whole, half = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 0.5, 1.0])
    assert overlap(whole, whole) == 1.0
    assert overlap(whole, half) == 0.5
    assert overlap(half, np.array([0.6, 0.0, 1.0, 1.0])) == 0.0


def test_shares_sum_to_one_or_zero() -> None:
    share = shares(np.array([[1.0, 3.0], [0.0, 0.0], [-1.0, 2.0]]))
    np.testing.assert_allclose(share, [[0.25, 0.75], [0, 0], [0, 1]])


def test_cosines_are_kept_and_large_scores_scaled(make: Make) -> None:
    explanation = make(("red", "cube"))
    cosines = replace(explanation, word_score=np.array([-0.2, 0.8])).strengths
    scores = replace(explanation, word_score=np.array([5.0, 20.0])).strengths
    np.testing.assert_allclose(cosines, [0.0, 0.8])  # type: ignore[arg-type]
    np.testing.assert_allclose(scores, [0.25, 1.0])  # type: ignore[arg-type]
    assert replace(explanation, word_score=None).strengths is None


def test_words_whose_box_is_known_are_shown_there(make: Make) -> None:
    """All of a phrase's words at its box, in one colour; other words where they attend."""
    box = np.array([0.05, 0.1, 0.45, 0.8])
    attended, found = make(), replace(make(), word_boxes={0: box, 1: box, 2: box})
    (first, *others), (_, *attended_others) = found.places, attended.places
    assert np.array_equal(first.box, box)
    assert first.words == (1, 2)
    assert others[0].words == (3,)
    assert np.array_equal(others[0].box, LEFT)
    assert [place.words for place in others[1:]] == [place.words for place in attended_others]
    ((drawn, strength),) = found.outlines(2, found.weights[2])
    assert strength == 1.0
    assert np.array_equal(drawn, box)
    assert np.array_equal(found.outlines(3, found.weights[3])[-1][0], LEFT)
    assert set(found.shortened(2).word_boxes) == {0, 1}
    assert 'x="50" y="100" width="400" height="700"' in match_figure(found)


@pytest.mark.parametrize("boxes", [{9: np.ones(4)}, {0: np.ones(3)}, {0: np.full(4, np.nan)}])
def test_a_known_box_is_a_box_of_a_word(make: Make, boxes: dict[int, np.ndarray]) -> None:
    with pytest.raises(SaccadeError, match="word_boxes"):
        replace(make(), word_boxes=boxes)
