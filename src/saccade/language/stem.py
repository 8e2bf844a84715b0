"""Stems of English words: the Snowball stemmer "english" (M. F. Porter's second), which METEOR compares words by.

A word is cut in four or five steps, each of which takes off or changes the longest ending of its list that fits. Two
places of the word say what may go: R1 begins after the first consonant that follows a vowel, R2 is the same within R1.
Inside this file a y that acts as a consonant is written Y.
"""

from __future__ import annotations

import re
from functools import lru_cache

from saccade.language.caption_words import WORDS, word_pairs, word_table

_TABLES = WORDS["stems"]
IRREGULAR, WHOLE_AFTER_S = word_pairs(_TABLES["irregular"]), word_table(_TABLES["whole_after_s"])
VOWELS = "aeiouy"
DOUBLES = frozenset(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"))
BEFORE_LI = tuple("cdeghkmnrt")

STEP_2, STEP_3, STEP_4 = (word_pairs(_TABLES[step]) for step in ("step_2", "step_3", "step_4"))

_REGION = re.compile(f"[{VOWELS}][^{VOWELS}]")
_R1_BY_HAND = re.compile("gener|commun|arsen")
_SHORT_END = re.compile(f"(?:^|.*[^{VOWELS}])[{VOWELS}][^{VOWELS}wxY]$|^[{VOWELS}][^{VOWELS}]$")
_VOWEL = re.compile(f"[{VOWELS}]")


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word: "running" and "runs" → "run"."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _mark_consonant_y(word.removeprefix("'"))
    by_hand = _R1_BY_HAND.match(word)
    first = by_hand.end() if by_hand else _region(word, 0)
    second = _region(word, first)

    for ending in ("'s'", "'s", "'"):
        if word.endswith(ending):
            word = word.removesuffix(ending)
            break
    word = _step_1a(word)
    if word in WHOLE_AFTER_S:
        return word
    word = _step_1b(word, first)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in VOWELS:
        word = f"{word[:-1]}i"
    word = _replace(word, STEP_2, first, first)
    word = _replace(word, STEP_3, first, second)
    word = _replace(word, STEP_4, second, second)
    return _step_5(word, first, second).lower()


def _mark_consonant_y(word: str) -> str:
    marked: list[str] = []
    for place, letter in enumerate(word):
        consonant = letter == "y" and (place == 0 or marked[-1] in VOWELS)
        marked.append("Y" if consonant else letter)
    return "".join(marked)


def _region(word: str, start: int) -> int:
    found = _REGION.search(word, start)
    return found.end() if found else len(word)


def _step_1a(word: str) -> str:
    """Plurals and their like."""
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _step_1b(word: str, first: int) -> str:
    """-ed and -ing, and the e or the single consonant they hid."""
    for ending in ("eedly", "ingly", "edly", "eed", "ing", "ed"):
        if not word.endswith(ending):
            continue
        start = word.removesuffix(ending)
        if ending.startswith("eed"):
            return f"{start}ee" if len(start) >= first else word
        if not _VOWEL.search(start):
            return word
        if start.endswith(("at", "bl", "iz")):
            return f"{start}e"
        if start[-2:] in DOUBLES:
            return start[:-1]
        return f"{start}e" if len(start) <= first and _SHORT_END.match(start) else start
    return word


def _replace(word: str, endings: dict[str, str], first: int, second: int) -> str:
    """Put what belongs there in place of the longest ending that fits, if it lies in its region."""
    for length in range(min(7, len(word)), 1, -1):
        ending, start = word[-length:], word[:-length]
        if ending not in endings:
            continue
        fits = len(start) >= (second if ending == "ative" else first)
        if ending == "ogi":
            fits = fits and start.endswith("l")
        elif ending == "li":
            fits = fits and start[-1:] in BEFORE_LI
        elif ending == "ion":
            fits = fits and start.endswith(("s", "t"))
        return start + endings[ending] if fits else word
    return word


def _step_5(word: str, first: int, second: int) -> str:
    """A last e, or one of two l's."""
    start = word[:-1]
    if word.endswith("e") and (len(start) >= second or (len(start) >= first and not _SHORT_END.match(start))):
        return start
    if word.endswith("ll") and len(start) >= second:
        return start
    return word
