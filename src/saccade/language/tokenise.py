"""Sentences to words, as the Penn Treebank splits them: "the dog's ball isn't red." → the dog 's ball is n't red .

The vocabularies of the official matching code were built this way, so their words must come out the same here:
straight double quotes become `` and '', possessives and contractions stand alone, all in lower case.
"""

from __future__ import annotations

import re
import unicodedata

# Letters, digits, and the accents and vowel signs that some scripts write as characters of their own.
_LETTER = r"[\w\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e]"
_TOKEN = re.compile(
    rf"""{_LETTER}+ (?: (?: [-'.] | (?<=\d)[,:](?=\d) ) {_LETTER}+ )*  # t-shirt, l'homme, u.s, 4-wheeler, 1,000, 10:30
    | ' (?: s | m | d | n | t | ll | re | ve ) \b                      # written apart already: the dog 's ball
    | `` | '' | --+ | \.\.+
    | [^\w\s]""",
    re.VERBOSE,
)
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|m|d|ll|re|ve))")
_OPENING_QUOTE = re.compile(r'(?<![^\s(\[{<])"')


def tokenise(text: str) -> list[str]:
    """Lower-cased words and punctuation marks. Scripts written without spaces are not cut into words."""
    text = unicodedata.normalize("NFC", text.lower()).replace("’", "'")
    text = _OPENING_QUOTE.sub("``", text).replace('"', "''")
    tokens: list[str] = []
    for token in _TOKEN.findall(text):
        split = _CLITIC.fullmatch(token)
        tokens += split.groups() if split else [token]
    return tokens
