"""VQA accuracy, equality with one truth, targets and answer vocabularies. The golden has the evaluator's own cases."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.metrics.answers import (
    answer_scores,
    by_kind,
    canonical_answer,
    equals_truth,
    frequent_answers,
    normalise_answer,
    score_answers,
    soft_scores,
    vqa_accuracy,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Two Dogs.", "2 dogs"),
        ("dont", "don't"),
        ("couldnt've", "couldn't've"),
        ("'ow'sat", "'ow's'at"),
        ("somebody'd", "somebodyd"),  # the official table has it this way round
        ("3.5", "3.5"),
        ("a/b", "b"),  # the stroke becomes a blank, and "a" an article
        ("red / blue", "red blue"),
        ("1,000", "1000"),
        ("", ""),
    ],
)
def test_answers_are_normalised_as_officially(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


@pytest.mark.parametrize(("matches", "expected"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)])
def test_accuracy_grows_with_those_who_agree(matches: int, expected: float) -> None:
    answers = ["cat"] * matches + ["dog"] * (10 - matches)
    assert vqa_accuracy("cat", answers) == pytest.approx(expected)
    assert vqa_accuracy("cat", answers, leave_one_out=False) == pytest.approx(min(matches / 3, 1))


def test_black_with_a_full_stop_counts_where_answers_are_always_normalised() -> None:
    """The official evaluator normalises nothing where all ten agree."""
    agreed, divided = ["black"] * 10, ["black"] * 9 + ["grey"]
    assert vqa_accuracy("Black.", agreed) == 0.0
    assert vqa_accuracy("Black.", agreed, "normalised") == 1.0
    assert vqa_accuracy("Black.", divided) == vqa_accuracy("Black.", divided, "normalised") == 1.0
    assert list(score_answers(["Black."], [agreed], answer_scores([agreed]))) == [
        "vqa_accuracy",
        "vqa_accuracy_normalised",
    ]


def test_one_truth_is_a_set_of_items() -> None:
    assert equals_truth("Chair, the table", ["table, chair"]) == 1.0
    assert equals_truth("garbage bin", ["garbage_bin"]) == 1.0
    assert equals_truth("table", ["table, chair"]) == 0.0
    assert canonical_answer("Garbage_bin , The table.") == "garbage bin, table"
    with pytest.raises(SaccadeError, match="one true answer was expected, there are 2"):
        equals_truth("table", ["table", "chair"])


def test_scores_come_for_each_question_and_by_kind() -> None:
    answers = [["2"], ["red"], ["blue"]]
    scores = score_answers(["two", "red", "green"], answers, answer_scores(answers))
    assert scores["accuracy"].tolist() == [1.0, 1.0, 0.0]
    assert by_kind(scores["accuracy"], ["number", "colour", "colour"]) == {"colour": 0.5, "number": 1.0}
    assert by_kind(np.ones(2), ["", "count"]) == {"count": 1.0}
    with pytest.raises(SaccadeError, match="2 predictions for 3 questions"):
        score_answers(["two", "red"], answers, answer_scores(answers))


@pytest.mark.parametrize("answers", [[], [[]], [["yes"], []]])
def test_what_has_no_answers_cannot_be_scored(answers: list[list[str]]) -> None:
    with pytest.raises(SaccadeError, match="no answers to score by"):
        answer_scores(answers)
    with pytest.raises(SaccadeError, match="without answers"):
        vqa_accuracy("yes", [])


def test_targets_are_worth_what_the_evaluator_gives_them() -> None:
    answers = ["Dog", "the dog", "dog", "dog", "cat", "cat", "cat", "two", "2", "bird"]
    official = soft_scores(answers)
    assert official == pytest.approx({"dog": 1.0, "cat": 0.9, "2": 0.6, "bird": 0.3})
    assert all(vqa_accuracy(answer, answers) == pytest.approx(score) for answer, score in official.items())
    assert soft_scores(answers, "reference") == {
        "Dog": 0.3,
        "the dog": 0.3,
        "dog": 0.6,
        "cat": 0.9,
        "two": 0.3,
        "2": 0.3,
        "bird": 0.3,
    }
    assert soft_scores(["Table, a chair"]) == {"table, chair": 1.0}


def test_a_vocabulary_holds_what_is_frequent() -> None:
    ten = [["yes"] * 6 + ["no"] * 4] * 3 + [["No"] * 10] * 2 + [["two"] * 10, ()]
    assert frequent_answers(ten) == ("yes", "no", "2")
    assert frequent_answers(ten, min_count=2) == ("yes", "no")
    assert frequent_answers(ten, max_size=1) == ("yes",)
    assert frequent_answers([["b"], ["a"], ["Chair, table"], ["."]]) == ("b", "chair, table")
