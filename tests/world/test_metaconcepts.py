"""Questions about two concepts: true by the ontology, balanced by their words, and new pairs in dev and test."""

from __future__ import annotations

from collections import Counter

import pytest

from saccade.core.errors import SaccadeError
from saccade.world.catalogue import COLOURS, KINDS, MATERIALS, SIZES
from saccade.world.questions.metaconcepts import (
    ATTRIBUTE_NOUNS,
    CONCEPTS,
    METACONCEPTS,
    SPLITS,
    holds,
    metaconcept_questions,
    parse_metaconcept,
)

SEEDS = (0, 1, 2)


def test_concepts_are_of_things_that_there_are() -> None:
    values = {"kind": set(KINDS), "colour": set(COLOURS), "size": set(SIZES), "material": set(MATERIALS)}
    for concept in CONCEPTS.values():
        assert concept.values
        assert concept.values <= values[concept.attribute]
    assert CONCEPTS["animal"].values > CONCEPTS["mammal"].values == {"cat", "dog", "horse", "bear"}
    assert not set(CONCEPTS) & set(ATTRIBUTE_NOUNS.values())


@pytest.mark.parametrize(
    ("metaconcept", "first", "second", "true"),
    [
        ("synonym", "ball", "sphere", True),
        ("synonym", "ball", "cube", False),
        ("synonym", "ball", "ball", False),
        ("hypernym", "animal", "dog", True),
        ("hypernym", "animal", "mammal", True),
        ("hypernym", "dog", "animal", False),  # the other way round
        ("hypernym", "warm", "crimson", True),
        ("hypernym", "warm", "blue", False),
        ("hypernym", "sphere", "ball", False),
        ("same_kind", "red", "green", True),
        ("same_kind", "red", "cube", False),
        ("same_kind", "red", "warm", False),
        ("meronym", "wheel", "automobile", True),
        ("meronym", "wheel", "boat", False),
        ("meronym", "car", "wheel", False),
        ("instance_of", "colour", "navy", True),
        ("instance_of", "material", "navy", False),
        ("instance_of", "toy", "dog", True),
    ],
)
def test_what_the_ontology_says(metaconcept: str, first: str, second: str, true: bool) -> None:
    assert holds(metaconcept, first, second) is true


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pair_in_dev_or_test_is_new_and_its_concepts_are_known(seed: int) -> None:
    parts = {split: metaconcept_questions(split, seed) for split in SPLITS}
    pairs = {s: {(q.kind, frozenset((q.first, q.second))) for q in questions} for s, questions in parts.items()}
    known = {c for q in parts["train"] for c in (q.first, q.second)}
    for split in ("dev", "test"):
        assert not pairs[split] & pairs["train"]
        assert {c for q in parts[split] for c in (q.first, q.second)} <= known
    assert not pairs["dev"] & pairs["test"]
    assert known == {*CONCEPTS, *ATTRIBUTE_NOUNS.values()}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_concept_is_in_as_many_true_pairs_as_false_ones(seed: int) -> None:
    for split in SPLITS:
        questions = metaconcept_questions(split, seed)
        assert {q.kind for q in questions} == set(METACONCEPTS)
        counts = Counter((q.kind, n, q[n], q.answer) for q in questions for n in (1, 2))
        for kind, side, concept, _ in counts:
            assert counts[kind, side, concept, "yes"] == counts[kind, side, concept, "no"]
        for q in questions:
            assert q.answer == ("yes" if holds(q.kind, q.first, q.second) else "no")


def test_every_question_is_read_back_as_what_was_meant() -> None:
    for split in SPLITS:
        for question in metaconcept_questions(split):
            assert parse_metaconcept(question.text) == question
    assert parse_metaconcept("Is red  the same kind of thing as green") is not None
    assert parse_metaconcept("is there a red cube?") is None
    assert parse_metaconcept("is red the same kind of thing as love?") is None


def test_a_seed_splits_the_pairs_in_its_own_way() -> None:
    assert metaconcept_questions("test", 0) == metaconcept_questions("test", 0)
    assert set(metaconcept_questions("test", 0)) != set(metaconcept_questions("test", 1))
    with pytest.raises(SaccadeError, match='metaconcept questions have no split "tset"; did you mean "test"'):
        metaconcept_questions("tset")
