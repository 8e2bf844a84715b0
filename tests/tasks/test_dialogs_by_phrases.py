"""A dialog read by the phrases of its turns, for a referrer that learned no dialogs."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.language import Vocabulary
from saccade.tasks.referring.dialog import learned_dialogs, turn_phrase, turns_multiplied

WORDS = Vocabulary.build(["a the red dog car shirt in of left no", "man"], min_count=1)


@pytest.mark.parametrize(
    ("turn", "phrase", "is_so"),
    [
        ("is it a red car? no", "a red car", False),
        ("Are they red? Yes, they are", "red", True),
        ("does it have a red shirt? yes.", "a red shirt", True),
        ("is he in the red shirt? no", "in the red shirt", False),
        ("what colour is it? red", "red", True),
        ("is it on the left? yes", "on the left", True),
        ("is it left of the dog? yes", "", True),  # about the dog, which is not meant
        ("is it a zyzzyva? no", "", False),
        ("is it a dog? n/a", "", True),
        ("is it? yes", "", True),
    ],
)
def test_a_turn_is_the_phrase_that_describes(turn: str, phrase: str, is_so: bool) -> None:
    assert turn_phrase(turn, WORDS) == (phrase, is_so)


def test_answers_keep_or_rule_out_and_turns_multiply() -> None:
    chances = {"a dog": [0.5, 0.25, 0.25], "red": [0.1, 0.1, 0.8]}
    turns = ("is it a dog? yes", "is it a zyzzyva? yes", "is it red? no")
    found = turns_multiplied(turns, WORDS, 3, lambda phrase: np.array(chances[phrase]))
    assert found[0] == pytest.approx([0.5, 0.25, 0.25])
    assert found[1] == pytest.approx(found[0])
    left = np.array([1, 0.5, 0.5]) * [0.875, 0.875, 0.01]
    assert found[2] == pytest.approx(left / left.sum())


def test_a_dialog_that_rules_out_everything_still_has_probabilities() -> None:
    found = turns_multiplied(("is it red? no",) * 400, WORDS, 2, lambda _: np.full(2, 0.5))
    assert found == pytest.approx(np.full((400, 2), 0.5))


def test_answers_that_the_vocabulary_knows_were_learned() -> None:
    assert not learned_dialogs(WORDS)  # "no dogs" is a phrase
    assert learned_dialogs(Vocabulary.build(["yes no"], min_count=1))
