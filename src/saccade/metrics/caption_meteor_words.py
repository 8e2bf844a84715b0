"""Sentences as METEOR reads them: its own normalising after the tokeniser, function words, stems and synonyms."""

from __future__ import annotations

import re
from dataclasses import dataclass

from saccade.language.stem import stem
from saccade.metrics.caption_meteor_tables import MeteorTables
from saccade.metrics.caption_score import Tokens

_LETTER = r"[^\W\d_]"
_PLAIN = re.compile(r"[a-z0-9 ]*\Z")
_ALONE = re.compile(r"([^\w\s.'`,‘’-]|_)")  # stands by itself
_DOTS = re.compile(r"\.{2,}")
_COMMA = re.compile(r"(?<!\d),|,(?!\d)")  # not that of 1,000
_HYPHEN = re.compile(r"([^\W_]|\.)-([^\W_])")
_APOSTROPHES = (
    (re.compile(rf"((?!{_LETTER}).)'((?!{_LETTER}).)"), r"\1 ' \2"),
    (re.compile(rf"([\W_])'({_LETTER})"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'((?!{_LETTER}).)"), r"\1 ' \2"),
    (re.compile(rf"({_LETTER})'({_LETTER})"), r"\1 '\2"),
    (re.compile(r"(\d)'(s)"), r"\1 '\2"),
)


@dataclass(frozen=True)
class MeteorSentence:
    """The words of a sentence and what they are compared by."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    function: tuple[bool, ...]  # words of little meaning: "the", "of"

    @property
    def function_count(self) -> int:
        return sum(self.function)


def read_sentence(tokens: Tokens, tables: MeteorTables) -> MeteorSentence:
    words = tuple(normalise(tokens, tables.abbreviations))
    return MeteorSentence(
        words, tuple([stem(word) for word in words]), tuple([word in tables.function_words for word in words])
    )


def normalise(tokens: Tokens, abbreviations: frozenset[str] = frozenset()) -> list[str]:
    """Tokens again, as the option `-norm` makes them: hyphenated words in parts, "U.S." without dots, quotes alike.

    The evaluation of captions has METEOR normalise what the Penn Treebank's tokeniser left, so both are needed for its
    figures: "n't" becomes "n" and "'t", "5:30 p.m." becomes "5", ":", "30", "pm".
    """
    text = " ".join(tokens).lower()
    if _PLAIN.match(text):
        return text.split()
    text = _DOTS.sub(r" \g<0> ", _ALONE.sub(r" \1 ", f" {text} "))
    text = _COMMA.sub(" , ", text)
    text = re.sub("[`‘’]", "'", text).replace("''", ' " ')
    text = _HYPHEN.sub(r"\1 \2", text.replace("–", "-").replace("--", "-"))
    for pattern, parted in _APOSTROPHES:
        text = pattern.sub(parted, text)
    words = text.split()
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        found.extend(_dots(word, following, abbreviations))
    return found


def _dots(word: str, following: str, abbreviations: frozenset[str]) -> tuple[str, ...]:
    """A word without the dots of an abbreviation, or with the full stop apart."""
    before = word[:-1]
    if not before or not word.endswith(".") or not before.strip("."):
        return (word,)
    if "." in before and re.search(_LETTER, before):
        return (word.replace(".", ""),)
    if before in abbreviations or (following[:1].isascii() and following[:1].islower()):
        return (word,)
    return (before, ".")
