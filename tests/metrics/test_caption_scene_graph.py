"""The F-score of facts: what counts as one, and what a caption gets for it."""

from __future__ import annotations

import pytest

from saccade.language import load_parser
from saccade.language.wordnet import WordNet
from saccade.metrics.caption_scene_graph import facts, scene_graph_f


def said(text: str) -> set[tuple[str, ...]]:
    return set(facts(load_parser().parse([text])[0]))


def f(candidate: str, *references: str, wordnet: WordNet | None = None) -> float:
    return scene_graph_f([candidate.split()], [[text.split() for text in references]], wordnet=wordnet).corpus


def test_facts_are_things_what_they_are_like_what_they_do_and_how_they_stand() -> None:
    found = said("a brown dog runs on the grass")
    assert found == {("dog",), ("grass",), ("dog", "brown"), ("dog", "run"), ("dog", "on", "grass")}


def test_the_same_said_otherwise_is_the_same() -> None:
    assert ("man", "throw", "ball") in said("a ball thrown by a man") & said("a man throws a ball")
    assert said("two dogs are running") == said("a dog that runs") == {("dog",), ("dog", "run")}


def test_order_of_words_does_not_matter_but_who_does_it_does() -> None:
    assert f("a dog chases a cat", "a cat is chased by a dog") > f("a dog chases a cat", "a dog is chased by a cat")


def test_precision_and_recall_count_alike() -> None:
    # Said: dog, dog brown. True: dog, dog run, grass, dog on grass. One of two, one of four.
    assert f("a brown dog", "a dog runs on grass") == pytest.approx(2 * (1 / 2) * (1 / 4) / (3 / 4))


def test_references_are_one_set_of_facts() -> None:
    assert f("a brown dog", "a dog", "a brown dog") == 1
    assert f("a brown dog", "a brown cat", "a black dog") == pytest.approx(2 * (1 / 2) * (1 / 4) / (3 / 4))


def test_nothing_in_common_is_nothing() -> None:
    assert f("a dog", "a cat") == 0
    assert f("", "a cat") == 0
    assert f("zxqv", "") == 0


def test_synonyms_are_one_word_with_wordnet() -> None:
    wordnet = WordNet({"bike": frozenset([1, 2]), "bicycle": frozenset([2])})
    assert f("a red bike", "a red bicycle") == 0
    assert f("a red bike", "a red bicycle", wordnet=wordnet) == 1


def test_the_corpus_figure_is_the_mean() -> None:
    score = scene_graph_f([["a", "dog"], ["a", "dog"]], [[["a", "dog"]], [["a", "cat"]]])
    assert score.each.tolist() == [1, 0]
    assert score.corpus == 0.5
