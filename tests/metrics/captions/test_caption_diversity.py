"""Figures of a captioner's language, on captions small enough to count by hand."""

from __future__ import annotations

import pytest

from saccade.core.errors import SaccadeError
from saccade.metrics.captions.report import diversity, mutual_bleu

CAPTIONS = [text.split() for text in ("a dog runs", "a dog sits", "a dog runs")]


def test_figures_are_counted() -> None:
    found = diversity(CAPTIONS, training=[["a", "dog", "sits"]])
    assert found.distinct_1 == pytest.approx(4 / 9)
    assert found.distinct_2 == pytest.approx(3 / 6)
    assert found.vocabulary == 4
    assert found.captions == pytest.approx(2 / 3)
    assert found.length == 3
    assert found.novel == pytest.approx(2 / 3)


def test_without_training_captions_nothing_is_said_of_novelty() -> None:
    assert diversity(CAPTIONS).novel is None


def test_self_bleu_is_one_for_a_parrot_and_none_for_strangers() -> None:
    long = ["a", "dog", "runs", "over", "the", "green", "grass"]
    assert diversity([long] * 3).self_bleu == pytest.approx(1)
    strangers = [[f"{word}{n}" for word in long] for n in range(3)]
    assert diversity(strangers).self_bleu == pytest.approx(0, abs=1e-3)


def test_self_bleu_of_many_captions_is_that_of_a_drawn_sample() -> None:
    captions = [[f"word{n % 7}", f"word{n % 11}", f"word{n % 3}", "ends", "here"] for n in range(500)]
    assert diversity(captions, seed=1) == diversity(captions, seed=1)
    assert diversity(captions, seed=1).self_bleu != diversity(captions, seed=2).self_bleu


def test_mutual_bleu_needs_several_captions_of_a_picture() -> None:
    one = ["a", "dog", "runs", "over", "the", "grass"]
    other = ["two", "cats", "sleep", "on", "a", "chair"]
    assert mutual_bleu([[one, one], [other, other]]) == pytest.approx(1)
    assert mutual_bleu([[one, other]]) < 0.1
    with pytest.raises(SaccadeError, match="fewer than two"):
        mutual_bleu([[one]])


def test_no_captions_are_refused() -> None:
    with pytest.raises(SaccadeError):
        diversity([])
