"""spaCy behind the same door: our tokens, universal labels, a sentence where something is missing."""

from __future__ import annotations

import sys

import pytest

from saccade.core.errors import SaccadeError
from saccade.language import Parser, load_parser, tokenise
from saccade.language.parsing.foreign import universal


@pytest.fixture(scope="module")
def spacy_parser() -> Parser:
    return load_parser("spacy")


def test_tokens_are_ours_and_labels_universal(spacy_parser: Parser) -> None:
    assert spacy_parser.name.startswith("spacy:en_core_web")
    texts = ["A man's t-shirt isn't red .", "A dog jumps over a fence .", "There is a cat on the grass . It sleeps ."]
    for text, parse in zip(texts, spacy_parser.parse(texts), strict=True):
        assert list(parse.tokens) == tokenise(text)
        assert parse.heads.count(-1) == 1
        assert not {"prep", "pobj", "dobj", "ROOT", "nsubjpass"} & set(parse.labels)


def test_things_and_relations_are_read(spacy_parser: Parser) -> None:
    parse = spacy_parser.parse(["A brown dog in front of a fence is chasing two cats ."])[0]
    assert [o.name for o in parse.objects] == ["dog", "fence", "cats"]
    found = {(r.subject.name, " ".join(r.predicate), r.object.name) for r in parse.relations}
    assert found == {("dog", "in front of", "fence"), ("dog", "chasing", "cats")}
    assert [(a.object.name, a.word) for a in parse.attributes] == [("dog", "brown")]


def test_prepositions_and_is_stand_between_words_no_more() -> None:
    """The cat is out of a box: is → out → of → box."""
    heads, labels = universal(
        [1, 2, -1, 2, 3, 6, 4],
        ["det", "nsubj", "ROOT", "prep", "prep", "det", "pobj"],
        ["DET", "NOUN", "AUX", "ADP", "ADP", "DET", "NOUN"],
        [False, False, True, False, False, False, False],
    )
    assert heads == [1, 6, 6, 6, 6, 6, -1]
    assert labels == ["det", "nsubj", "cop", "case", "case", "det", "root"]


def test_a_missing_model_or_spacy_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SaccadeError, match=r'could not load the model "en_core_web_nothing".*saccade\[parse\]'):
        load_parser("spacy:en_core_web_nothing")
    import spacy

    monkeypatch.setattr(spacy.util, "get_installed_models", list)
    with pytest.raises(SaccadeError, match="no English model"):
        load_parser("spacy")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(SaccadeError, match="needs spaCy"):
        load_parser("spacy")
