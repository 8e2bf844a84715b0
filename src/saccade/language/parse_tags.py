"""What each word of a caption is, from tables, its ending, and its neighbours: "a dog bites a cat" has one verb.

Classes are single letters, so that a caption's are quickly compared. From the tables come
  d determiner · v owner (his) · q number · a adjective · m adjective or material noun · n noun · N plural noun
  p pronoun · g -ing form · e participle · f past · s verb in -s, or plural noun · b verb, or noun · x auxiliary
  i preposition · c and, or · u while, as · w who, that · r adverb · t to · h there · k 's · , comma · . other mark
and after their neighbours are known, of verbs: V finite · G -ing · E participle · I infinitive; F goes on with the
preposition before it ("in *front of*").
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.language.caption_words import (
    BE,
    BEFORE_ING,
    HAVE,
    MODALS,
    NAMING_ING,
    NOUN_COLLECTIVES,
    ONLY_VERBS,
    PARTICLES,
    lexicon,
)
from saccade.language.parse_fixed import FIRST_OF_SEVERAL, compound_length

NOMINAL = frozenset("anNmbsSgeqB")  # what may stand between a determiner and the end of its noun phrase
PHRASE_START = frozenset("dvqanNmpbsSgB")


class _Classes(dict[str, str]):
    """The lexicon; a word it does not hold is judged by its ending, once."""

    def __missing__(self, word: str) -> str:
        if len(self) > 200_000:  # a stream of unheard-of words must not fill the memory
            self.clear()
            self.update(lexicon())
        self[word] = letter = self._judge(word)
        return letter

    def _judge(self, word: str) -> str:
        if word in ("'s", "'"):
            return "k"
        if not any(map(str.isalnum, word)):
            return "."
        if word[0].isdigit():
            return "q"
        last = word.rsplit("-", 1)[-1]
        if last != word:
            letter = self[last]
            return "a" if letter in "aeim" or last.endswith("ed") else "n" if letter not in "nNsSg" else letter
        if word.endswith("ing") and len(word) > 5:
            return "g"
        if word.endswith("ed") and len(word) > 4:
            return "e"
        if word.endswith("ly") and len(word) > 4:
            return "r"
        if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
            return "S"
        return "n"


CLASSES = _Classes(lexicon())
_MAY_BE_NOUN = frozenset("nNmbsSaB")


def classify(words: Sequence[str]) -> list[str]:
    """One letter a word."""
    found = [CLASSES[word] for word in words]
    count = len(found)
    raw = [*found, ".", "."]  # as the tables have it, for looking ahead
    finite = False  # whether the clause has its verb
    joined = False  # whether "and" was seen since the clause began
    place = 0
    before = "."
    while place < count:
        word, letter, after = words[place], found[place], raw[place + 1]
        if word in FIRST_OF_SEVERAL:
            length = compound_length(words, place)
            if length and (length > 2 or raw[place + length] in PHRASE_START):
                found[place : place + length] = ["i"] + ["F"] * (length - 1)
                place += length
                before = "i"
                continue
        if letter == "n" or letter == "d" or letter == "N":
            pass
        elif letter == "a":
            if after not in NOMINAL and after not in "cr,":
                if before in "dvqi" or (before == "a" and place > 1 and found[place - 2] in "dv"):
                    letter = "n"  # "in black", "the other"
            elif before == "i" and after in "c," and raw[place + 2] not in "am":
                letter = "n"
        elif letter == "m":
            letter = "a" if after in _MAY_BE_NOUN or (after == "c" and raw[place + 2] in "am") else "n"
            if before == "x" and letter == "n":
                letter = "a"
        elif letter == "i":
            if word in PARTICLES and after not in PHRASE_START and not (after == "e" and raw[place + 2] in "nN"):
                letter = "r"
            elif word == "like" and before == "x":
                letter = "i"
        elif letter == "q":
            if after not in NOMINAL and after not in "dvm" and word not in ("only", "just", "about"):
                letter = "p"
        elif letter == "g":
            letter = _doing(words, found, raw, place, before, after)
        elif letter == "s":
            letter = "V" if _is_verb_in_s(before, after, finite, raw[place + 2]) else "N"
        elif letter == "S":
            letter = "V" if before in "nw" and not finite and after in "dvpq" else "N"
        elif letter == "b":
            letter = _base(words, found, place, before, after, finite, joined)
        elif letter == "e":
            letter = _participle(words, raw, place, before, after, finite)
        elif letter == "f":
            letter = "V" if before not in "dva" else "n"
        elif letter == "x":
            if word == "'s" and not (before in "pwh" or after in "gd"):
                letter = "k"
            elif word in HAVE and after in "dvqanNmpiSsbr" and word != "having":
                letter = "V"
                finite = True
            elif word == "having":
                letter = "G"
            elif word in MODALS and word[:2] == "do" and after not in "br":
                letter = "V"
            else:
                finite = finite or word not in ("be", "been", "being")
        elif letter == "w":
            if word == "that" and not (before in "nN," and after not in "nNa"):
                letter = "d"
            else:
                finite = joined = False
        elif letter == "u":
            if word == "as" and not _clause_follows(raw, place):
                letter = "i"
            elif word == "so" and after in "ar":
                letter = "r"
            else:
                finite = joined = False
        elif letter == "v":
            if word == "her" and after not in NOMINAL and after not in "mq":
                letter = "p"
        elif letter == "t":
            if after == "b" or (after == "n" and words[place + 1] in _BASES):
                letter = "T"
            else:
                letter = "i" if after in PHRASE_START else "r"
        elif letter == "h":
            letter = "h" if after == "x" else "r"
        elif letter == "c":
            joined = True
        if letter == "V":
            finite = True
        found[place] = before = letter
        place += 1
    return found


_BASES = frozenset(word for word, letter in CLASSES.items() if letter == "b") | {"be", "have", "do", "cover", "board"}


def _is_verb_in_s(before: str, after: str, finite: bool, later: str) -> bool:
    """jumps, waves: what a singular noun does, or things."""
    if finite:
        return before in "c," and after in "dvirpt" and (before == "c" or after != "i")
    if before in "nw":
        return True
    return (before in "rp" and after not in "nN") or (before == "c" and after in "dv")


def _base(
    words: Sequence[str], found: list[str], place: int, before: str, after: str, finite: bool, joined: bool
) -> str:
    """run, play: after "to" and a modal, or what several do."""
    if before == "T" or (before == "x" and words[place - 1] not in BE):
        return "I"
    if finite and not (before == "c" and after in "dvir"):
        return "n"
    previous = words[place - 1] if place else ""
    if before == "N" or (before == "p" and previous not in ("it", "him", "them", "us", "me")):
        return "V"
    if before == "w" and place > 1 and found[place - 2] in "N,":
        return "V"
    if before == "n" and (previous in NOUN_COLLECTIVES or (joined and words[place] in ONLY_VERBS)):
        return "V"
    if before == "r" and words[place] in ONLY_VERBS and after in "dvirt.":
        return "V"
    if before == "c" and finite and words[place] in ONLY_VERBS:
        return "V"
    return "n"


def _doing(words: Sequence[str], found: list[str], raw: list[str], place: int, before: str, after: str) -> str:
    """running: before a noun a name or a description, else what somebody does."""
    named = after in "nNmbsS"
    if before in "dvq" or (before == "a" and place > 1):
        if named or after in "ag":
            return "a"
        return "n" if before in "dv" or (after in "i.,c" and before == "a" and words[place] in NAMING_ING) else "G"
    if before in "iGV" and named and words[place] in NAMING_ING:
        return "a"
    if before == "n" and words[place - 1] in BEFORE_ING:
        return "n"
    return "G"


def _participle(words: Sequence[str], raw: list[str], place: int, before: str, after: str, finite: bool) -> str:
    """covered: after "is" and after a noun what is done to it, before a noun what it is like."""
    if before == "x":
        return "E"
    if before in "dvqairGVEc,." and after in _MAY_BE_NOUN:
        return "a"
    if before in "dv":
        return "a" if after in "gec," else "n"
    if before in "nNpw" and not finite and after in "dvpr":
        return "V"
    return "E"


def _clause_follows(raw: list[str], place: int) -> bool:
    """Whether a verb comes after "as" before the sentence turns elsewhere."""
    for n in range(place + 1, len(raw)):
        letter = raw[n]
        if letter in "xf" or (letter in "sS" and raw[n - 1] == "n") or (letter == "b" and raw[n - 1] == "N"):
            return True
        if letter in "uw.":
            return False
    return False
