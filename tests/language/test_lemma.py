"""Base forms of the words of captions."""

from __future__ import annotations

import pytest

from saccade.language.caption_words import lemma, predicate_name


@pytest.mark.parametrize(
    ("word", "tag", "base"),
    [
        ("dogs", "NOUN", "dog"),
        ("children", "NOUN", "child"),
        ("glasses", "NOUN", "glasses"),
        ("riding", "VERB", "ride"),
        ("rode", "VERB", "ride"),
        ("ridden", "VERB", "ride"),
        ("running", "VERB", "run"),
        ("sits", "VERB", "sit"),
        ("sat", "VERB", "sit"),
        ("laying", "VERB", "lie"),
        ("is", "AUX", "be"),
        ("has", "VERB", "have"),
        ("zorbing", "VERB", "zorbing"),
        ("grey", "ADJ", "gray"),
        ("red", "ADJ", "red"),
    ],
)
def test_a_word_has_its_base_form(word: str, tag: str, base: str) -> None:
    assert lemma(word, tag) == base


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("rides", "riding"),
        ("riding", "riding"),
        ("sit on", "sitting on"),
        ("wears", "wearing"),
        ("laying on", "lying on"),
        ("opens", "opening"),
        ("has", "with"),
        ("'s", "with"),
        ("in front of", "in front of"),
        ("left of", "left of"),
        ("covered in", "covered in"),
    ],
)
def test_a_predicate_has_one_name(words: str, name: str) -> None:
    assert predicate_name(words.split()) == name


def test_a_passive_is_named_as_what_the_other_does() -> None:
    assert predicate_name(["held", "by"], passive=True) == "holding"
    assert predicate_name(["thrown", "by"], passive=True) == "throwing"
