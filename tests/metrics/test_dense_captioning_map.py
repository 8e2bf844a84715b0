"""Dense captioning's mean average precision on cases worked out by hand, and against a plain loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from saccade.metrics.captions.score import CaptionScore
from saccade.metrics.dense_captioning import OVERLAPS, RECALL_LEVELS, SCORES, Phrased, dense_captioning_map, merge
from saccade.metrics.detection import average_precision


def same_words(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> CaptionScore:
    """1 where a reference is said word for word, 0.12 where only the last word is right, else 0."""

    def score(said: Sequence[str], known: Sequence[Sequence[str]]) -> float:
        return 1.0 if tuple(said) in map(tuple, known) else 0.12 * any(said[-1] == one[-1] for one in known)

    return CaptionScore.mean([score(c, r) for c, r in zip(candidates, references, strict=True)])


def phrased(boxes: list[list[float]], phrases: list[str], confidence: list[float] | None = None) -> Phrased:
    said = [[phrase.split() for phrase in some.split("/")] for some in phrases]
    return Phrased(
        np.array(boxes, dtype=float).reshape(-1, 4), said, None if confidence is None else np.array(confidence)
    )


CUBE, BALL = [0.0, 0.0, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9]
TRUTH = phrased([CUBE, BALL], ["a red cube", "a blue ball/a ball"])


def test_all_right_is_one_and_nothing_is_zero() -> None:
    right = phrased([CUBE, BALL], ["a red cube", "a ball"], [0.9, 0.8])
    assert dense_captioning_map([right], [TRUTH], same_words) == {"map": 1.0, "detection_map": 1.0}
    nothing = phrased([], [], [])
    assert dense_captioning_map([nothing], [TRUTH], same_words) == {"map": 0.0, "detection_map": 0.0}
    assert dense_captioning_map([right], [nothing], same_words) == {"map": 0.0, "detection_map": 0.0}


def test_words_count_by_threshold() -> None:
    """A noun alone scores 0.12: above 0, 0.05 and 0.1, and below 0.15, 0.2 and 0.25."""
    half = phrased([CUBE, BALL], ["a green cube", "the ball"], [0.9, 0.8])
    assert dense_captioning_map([half], [TRUTH], same_words) == {"map": pytest.approx(0.5), "detection_map": 1.0}


def test_a_score_must_be_above_the_threshold_an_overlap_only_reach_it() -> None:
    """No word right: METEOR 0 is not above 0. An overlap of 0.5 counts at 0.5."""
    truth = phrased([[0, 0, 1, 1]], ["a cube"])
    wrong = phrased([[0, 0, 1, 0.5]], ["the dog"], [1.0])
    figures = dense_captioning_map([wrong], [truth], same_words)
    assert figures == {"map": 0.0, "detection_map": pytest.approx(3 / 5)}


def test_a_box_is_claimed_once_and_by_the_surest() -> None:
    twice = phrased([CUBE, CUBE], ["a dog", "a red cube"], [0.9, 0.8])
    truth = phrased([CUBE], ["a red cube"])
    assert dense_captioning_map([twice], [truth], same_words) == {"map": 0.0, "detection_map": 1.0}
    other = phrased([CUBE, CUBE], ["a dog", "a red cube"], [0.7, 0.8])
    assert dense_captioning_map([other], [truth], same_words)["map"] == 1.0


def test_pictures_are_ranked_together() -> None:
    """A false box that is surer than the right one of another picture halves its precision."""
    right, false = phrased([CUBE], ["a red cube"], [0.5]), phrased([BALL], ["a ball"], [0.9])
    truths = [phrased([CUBE], ["a red cube"])] * 2
    assert dense_captioning_map([right, false], truths, same_words)["map"] == pytest.approx(0.5 * 51 / 101)


def test_true_boxes_that_overlap_are_one_with_all_their_phrases() -> None:
    near = [0.0, 0.0, 0.4, 0.44]
    merged = merge(phrased([CUBE, BALL, near], ["a cube", "a ball", "a red block"]))
    np.testing.assert_allclose(merged.boxes, [[0, 0, 0.4, 0.42], BALL])
    assert [[" ".join(p) for p in phrases] for phrases in merged.phrases] == [["a cube", "a red block"], ["a ball"]]
    assert len(merge(phrased([CUBE, [0, 0, 0.4, 0.6]], ["a", "b"])).boxes) == 2  # an overlap of two thirds


def test_average_precision_equals_the_loop_over_levels() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        right, total = draw.random(30) < 0.4, 20
        hits = np.cumsum(right)
        recall, precision = hits / total, hits / np.arange(1, 31)
        levels = [
            max([p for p, r in zip(precision, recall, strict=True) if r >= n / 100 - 1e-12], default=0.0)
            for n in range(101)
        ]
        assert average_precision(right, total, RECALL_LEVELS) == pytest.approx(np.mean(levels))


def test_meteor_is_the_metric_unless_another_is_given() -> None:
    said = phrased([CUBE, BALL], ["a red cube", "zebra"], [0.9, 0.8])
    figures = dense_captioning_map([said], [TRUTH])
    assert figures["map"] == pytest.approx(51 / 101)  # one of two found, above all thresholds
    assert (len(OVERLAPS), len(SCORES)) == (5, 6)


def test_as_many_pictures_on_both_sides() -> None:
    with pytest.raises(ValueError, match="1 pictures"):
        dense_captioning_map([TRUTH], [], same_words)
