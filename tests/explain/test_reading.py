from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from saccade.explain import Explanation
from saccade.explain.draw import PALETTE
from saccade.explain.explanation import is_content, overlap, shares

Make = Callable[..., Explanation]


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
