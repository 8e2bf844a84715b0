"""Verb or noun, done or described? The words that only their neighbours can tell: jumps, play, running, covered, black.

Letters are those of `tags.py`: `before` is the class found for the word before, `after` and `raw` what the tables
say of the words that follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.language.adjectives import COLOUR_WORDS, word_table
from saccade.language.caption_words import ANIMATE, BE, BEFORE_ING, NAMING_ING, NOUN_COLLECTIVES, ONLY_VERBS
from saccade.language.phrases import singular

MAY_BE_NOUN = frozenset("nNmbsSao")
LIKE_SUFFIXES = word_table("covered dusted colored coloured sized shaped lined capped filled themed haired topped made")


def does(noun: str) -> bool:
    return singular(noun) in ANIMATE


def counted(found: list[str], place: int) -> bool:
    """ "two tube rafts": after a number there is no end but a plural."""
    at = place - 1
    while at >= 0 and found[at] in "na":
        at -= 1
    return at >= 0 and found[at] == "q"


def is_verb_in_s(found: list[str], place: int, before: str, after: str, finite: bool) -> bool:
    """jumps, waves: what one does, or things."""
    if finite:
        return before in "c," and after in "dvirpt" and (before == "c" or after != "i")
    if before == "n":
        return not counted(found, place)
    if before == "w":
        return True
    if before == "N":  # "a boy in shorts jumps", and the boys of careless writers
        return after in "dv" or ("n" in found[: place - 1] and after not in MAY_BE_NOUN)
    if before == ",":
        return "n" in found[:place] and after in "dvirpt"
    return (before in "rp" and after not in "nN") or (before == "c" and after in "dv")


def judge_base(
    words: Sequence[str], found: list[str], place: int, before: str, after: str, finite: bool, several: bool
) -> str:
    """run, play: after "to" and a modal, or what several do."""
    if before == "T" or (before == "x" and words[place - 1] not in BE):
        return "I"
    word, previous = words[place], words[place - 1] if place else ""
    if finite:
        return "V" if before == "c" and after in "dvir.," and word in ONLY_VERBS else "n"
    if before == "N" or (before == "p" and previous not in ("it", "him", "them", "us", "me")):
        return "V"
    if before == "w" and place > 1 and found[place - 2] in "N,":
        return "V"
    if before == "n" and previous in NOUN_COLLECTIVES:
        return "V"
    if before in "n,r" and several and word in ONLY_VERBS and after in "irdvtpg":
        return "V"
    return "n"


def stands_alone(words: Sequence[str], raw: list[str], place: int) -> bool:
    """Whether a colour is all somebody wears: "in black and white jumps over", but not "in red riding gear"."""
    at = place - 1
    while at > 0 and raw[at] in "ac,":
        at -= 1
    if words[at] not in ("in", "wearing", "wears"):
        return False
    at = place + 1
    while raw[at] in "c,a" and (raw[at] != "a" or words[at] in COLOUR_WORDS):
        if raw[at] in "c," and raw[at + 1] != "a":
            return True
        at += 1
    later = raw[at + 1] if at + 1 < len(raw) else "."
    return raw[at] in "fx" or (raw[at] in "ge" and later not in "nNmaS") or (raw[at] in "sb" and later in "irdvt")


def judge_ing(words: Sequence[str], found: list[str], raw: list[str], place: int, before: str, after: str) -> str:
    """running: before a noun a name or a description, else what somebody does."""
    named = after in "nNmbsS"
    if before == "r" and place > 1 and found[place - 2] in "dv" and named:  # "a fast running dog"
        return "a"
    if before in "dvq" or (before == "a" and place > 1):
        if named or after in "ag":
            return "a"
        described = before == "a" and found[place - 2] in "dvaq"  # "a large gathering"
        return (
            "n"
            if before in "dv" or described or (after in "i.,c" and before == "a" and words[place] in NAMING_ING)
            else "G"
        )
    if before in "iGV" and named and words[place] in NAMING_ING:
        return "a"
    if before == "n" and words[place - 1] in BEFORE_ING and words[place] in NAMING_ING and named:
        return "n"
    return "G"


def judge_participle(words: Sequence[str], raw: list[str], place: int, before: str, after: str, finite: bool) -> str:
    """covered: after "is" and after a noun what is done to it, before a noun what it is like."""
    if before == "T":
        return "I"
    if before == "x":
        return "E"
    if before in "dvqairGVEc,." and after in MAY_BE_NOUN:
        return "a"
    if before == "n" and after in MAY_BE_NOUN and words[place] in LIKE_SUFFIXES:  # "a snow covered hill"
        return "a"
    if before in "dv":
        return "a" if after in "gec," else "n"
    if before in "nNpw" and not finite and after in "dvpr":
        return "V"
    return "E"


def clause_follows(words: Sequence[str], raw: list[str], place: int) -> bool:
    """Whether a verb comes after "as" before the sentence turns elsewhere."""
    for n in range(place + 1, len(words)):
        letter, before = raw[n], raw[n - 1]
        if letter in "xf" or (letter in "sS" and before in "npN"):
            return True
        if letter == "b" and (before in "Np" or (before == "n" and words[n - 1] in NOUN_COLLECTIVES)):
            return True
        if letter in "uw.":
            return False
    return False
