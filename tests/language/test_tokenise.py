"""Sentences are split as the Penn Treebank splits them, so that official vocabularies find their words."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.language import tokenise, words_only


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A brown dog bites a gray dog.", "a brown dog bites a gray dog ."),
        ("the dog's ball isn't red", "the dog 's ball is n't red"),
        ("a man 's hat", "a man 's hat"),
        ("two dogs' toys", "two dogs ' toys"),
        ("they're, we've, I'll, I'm, he'd", "they 're , we 've , i 'll , i 'm , he 'd"),
        ("can't won't", "ca n't wo n't"),
        ("a t-shirt and a 4-wheeler", "a t-shirt and a 4-wheeler"),
        ("1,000 men at 10:30, 4.5 m", "1,000 men at 10:30 , 4.5 m"),
        ('a sign "stop" ("now")', "a sign `` stop '' ( `` now '' )"),
        ("wait... -- what?!", "wait ... -- what ? !"),
        ("red;blue/green & 50% #1", "red ; blue / green & 50 % # 1"),
        ("rock 'n roll", "rock 'n roll"),
        ("  tabs\tand\nlines  ", "tabs and lines"),
        ("", ""),
        (" \n\u00a0", ""),
    ],
)
def test_english_as_the_treebank_has_it(text: str, words: str) -> None:
    assert tokenise(text) == words.split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ein Mädchen läuft über die Straße.", "ein mädchen läuft über die straße ."),
        ("L'homme à l’ombre, où l'été brûle", "l' homme à l' ombre , où l' été brûle"),
        ("Aujourd'hui, quelqu'un dit qu'il n'y va pas", "aujourd'hui , quelqu'un dit qu' il n' y va pas"),
        ("jusqu'à l'École ; d'œuvre, s'amusent", "jusqu' à l' école ; d' œuvre , s' amusent"),
        ("« l'arc-en-ciel »\u00a0!", "« l' arc-en-ciel » !"),
        ("McDonald´s, für’s, dogʼs", "mcdonald 's , für 's , dog 's"),
        ("GROẞE Straße in İzmir", "große straße in izmir"),
        ("Fuß\u00adball\u200bplatz und U\u2011Bahn", "fußball platz und u-bahn"),
        ("\ufeffein Hund", "ein hund"),
        ("می\u200cخواهم", "میخواهم"),
        ("ไก่ ខ្មែរ မြန်မာ", "ไก่ ខ្មែរ မြန်မာ"),
        ("❤\ufe0f 👩\u200d🚀", "❤ 👩 🚀"),
        ("Příliš žluťoučký kůň úpěl", "příliš žluťoučký kůň úpěl"),
        ("Он идёт по улице", "он идёт по улице"),
        ("एक कुत्ता दौड़ता है", "एक कुत्ता दौड़ता है"),
        ("„Halt“ steht auf dem Schild", "„ halt “ steht auf dem schild"),
        ("a 🐕 runs", "a 🐕 runs"),
    ],
)
def test_other_languages_keep_their_letters_and_their_words(text: str, words: str) -> None:
    assert tokenise(text) == words.split(" ")


@pytest.mark.parametrize("word", ["d'oeuvres", "c'mon", "ma'am", "y'all", "o'clock", "rock'n'roll", "l'shaped"])
def test_english_words_that_only_look_like_elisions_stay_whole(word: str) -> None:
    assert tokenise(word) == [word]


def test_the_two_spellings_of_an_accent_are_one_word() -> None:
    assert tokenise(unicodedata.normalize("NFD", "été")) == tokenise("été") == ["été"]


def test_the_typographic_apostrophe_is_an_apostrophe() -> None:
    assert tokenise("the dog’s isn’t") == tokenise("the dog's isn't")


@given(st.text())
def test_any_text_gives_words_without_spaces_and_loses_no_letter(text: str) -> None:
    words = tokenise(text)
    seen = text.replace("ʼ", "'").replace("\u200b", " ")
    text = re.sub("[\u00ad\u200c-\u200f\u2060\ufe0e\ufe0f\ufeff]", "", seen)
    assert all(word and not any(map(str.isspace, word)) for word in words)
    assert [c for word in words for c in word if c.isalnum()] == [
        c for c in unicodedata.normalize("NFC", text.lower()) if c.isalnum()
    ]


@given(st.lists(st.sampled_from(["a", "dog", "'s", "n't", "``", "''", ".", "t-shirt", "1,000", "été"])))
def test_words_joined_by_spaces_come_back(words: list[str]) -> None:
    assert tokenise(" ".join(words)) == words


def test_captions_are_learned_without_punctuation_marks() -> None:
    text = "The dog's ball, a \"red\" one, isn't there."
    assert words_only(text) == "the dog 's ball a red one is n't there"
    assert tokenise(words_only(text)) == words_only(text).split()
