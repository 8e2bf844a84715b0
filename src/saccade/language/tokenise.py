"""Sentences to words, as the Penn Treebank splits them: "the dog's ball isn't red." → the dog 's ball is n't red .

The vocabularies of the official matching code were built this way, so their words must come out the same here:
straight double quotes become `` and '', possessives and contractions stand alone, all in lower case. The one tokeniser
serves every language written with spaces: letters of any script with their accents are words, and French elisions
stand alone as English contractions do (l'eau → l' eau).
"""

from __future__ import annotations

import re
import unicodedata


def _marks() -> str:
    """Accents and vowel signs that are characters of their own, as ranges of a regular expression."""
    kept = [c for c in range(0x300, 0x10000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    starts = [c for c in kept if unicodedata.category(chr(c - 1)) not in ("Mn", "Mc")]
    ends = [c for c in kept if unicodedata.category(chr(c + 1)) not in ("Mn", "Mc")]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


_LETTER = rf"[\w{_marks()}]"
_TOKEN = re.compile(
    rf"""{_LETTER}+ (?: (?: [-'.] | (?<=\d)[,:](?=\d) ) {_LETTER}+ )*  # t-shirt, l'homme, u.s, 4-wheeler, 1,000, 10:30
    | ' (?: s | m | d | n | t | ll | re | ve ) \b                      # written apart already: the dog 's ball
    | `` | '' | --+ | \.\.+
    | [^\w\s]""",
    re.VERBOSE,
)
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|m|d|ll|re|ve))")
_ELISION = re.compile(  # before a vowel or h; but English knows the word d'oeuvres
    r"((?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)')((?!oeuvres?$)[aeiouyàâäæéèêëîïôöœùûüÿh].*)"
)
_OPENING_QUOTE = re.compile(r'(?<![^\s(\[{<])"')

# What is written in several ways, in one; and what only tells a printer where to break a line, not at all.
_APOSTROPHES, _HYPHENS, _UNSEEN = "’ʼ´", "‐‑", "\u00ad\u200c\u200d\u200e\u200f\u2060\ufe0e\ufe0f\ufeff"
_ONE_WAY = str.maketrans(
    {**dict.fromkeys(_APOSTROPHES, "'"), **dict.fromkeys(_HYPHENS, "-"), **dict.fromkeys(_UNSEEN), "\u200b": " "}
)


def tokenise(text: str) -> list[str]:
    """Lower-cased words and punctuation marks. Scripts written without spaces are not cut into words."""
    text = unicodedata.normalize("NFC", text.translate(_ONE_WAY).lower()).replace("i̇", "i")  # the last: İ
    text = _OPENING_QUOTE.sub("``", text).replace('"', "''")
    tokens: list[str] = []
    for token in _TOKEN.findall(text):
        split = _CLITIC.fullmatch(token) or _ELISION.fullmatch(token)
        tokens += split.groups() if split else [token]
    return tokens
