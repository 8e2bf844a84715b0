"""Base forms of the words of captions."""

from __future__ import annotations

import pytest

from saccade.language.caption_words import lemma


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
