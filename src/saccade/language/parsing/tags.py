"""What each word of a caption is, from tables, its ending, and its neighbours: "a dog bites a cat" has one verb.

Classes are single letters, so that a caption's are quickly compared. From the tables come
  d determiner · v owner (his) · q number · a adjective · m adjective or material noun · n noun · N plural noun
  p pronoun · g -ing form · e participle · f past · s verb in -s, or plural noun · b verb, or noun · x auxiliary
  o other · i preposition · c and, or · u while, as · w who, that · r adverb · t to · h there · k 's · , comma
  . any other mark
and after their neighbours are known, of verbs: V finite · G -ing · E participle · I infinitive; F goes on with the
preposition before it ("in *front of*"), K names the verb after it ("*rock* climbing"), T is "to" before an infinitive.
"""

from __future__ import annotations

from collections.abc import Sequence

from saccade.language.adjectives import COLOUR_WORDS, word_table
from saccade.language.caption_words import (
    BEFORE_ING,
    HAVE,
    MODALS,
    NOUN_COLLECTIVES,
    PARTICLES,
    lexicon,
)
from saccade.language.parsing.compound_prepositions import FIRST_OF_SEVERAL, compound_length
from saccade.language.parsing.verbs import (
    MAY_BE_NOUN,
    clause_follows,
    counted,
    does,
    is_verb_in_s,
    judge_base,
    judge_ing,
    judge_participle,
    stands_alone,
)

NOMINAL = frozenset("anNmbsSgeqo")  # what may stand between a determiner and the end of its noun phrase
PHRASE_START = frozenset("dvqanNmpbsSgo")
ARTICLES = word_table("a an the no every")
_LIKE_ADJECTIVES = ("ous", "ful", "less", "able", "ish", "ive", "onic", "etic", "atic", "istic")


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
        return "m" if word.endswith(_LIKE_ADJECTIVES) and len(word) > 5 else "n"


CLASSES = _Classes(lexicon())


def classify(words: Sequence[str]) -> list[str]:
    """One letter a word."""
    found = [CLASSES[word] for word in words]
    count = len(found)
    raw = [*found, ".", "."]  # as the tables have it, for looking ahead
    finite = False  # whether the clause has its verb
    joined = False  # whether "and" was seen since the clause began
    relative = outside = False  # within "who …", and whether the clause around that has its verb
    begun = several = False  # whether its first noun was seen, and speaks of several
    place = 0
    before = "."
    while place < count:
        word, letter, after = words[place], found[place], raw[place + 1]
        if word in FIRST_OF_SEVERAL:
            length = compound_length(words, place)
            follows = raw[place + length]
            if length and (length > 2 or (follows in PHRASE_START and (follows != "b" or words[place + 1] != "to"))):
                found[place : place + length] = ["i"] + ["F"] * (length - 1)
                place += length
                before = "i"
                continue
        if letter == "n":
            if before == "T":
                letter = "I"  # "to cover"
            elif after in "gs" and word in BEFORE_ING and before in "xnNG" and raw[place + 2] not in "nN":
                letter = "K"
            elif before == "N" and not finite and after in "irt" and does(words[place - 1]):
                letter = "V"  # a verb no table holds: "two dogs tussle in the snow"
        elif letter == "N":
            pass
        elif letter == "d":
            if (after not in NOMINAL and after not in "mdvro" and word not in ARTICLES) or (
                word == "another" and after == "s"
            ):
                letter = "p"
        elif letter == "o":
            letter = "a" if after in NOMINAL and (before != "d" or words[place - 1] != "each") else "p"
        elif letter == "a":
            if word in COLOUR_WORDS and before in "icGV" and stands_alone(words, raw, place):
                letter = "n"
            elif after not in NOMINAL and after not in "cr,":
                if before in "dvqi" or (before == "a" and place > 1 and found[place - 2] in "dv"):
                    letter = "n"  # "in black", "the other"
            elif before == "i" and after in "c," and raw[place + 2] not in "am":
                letter = "n"
        elif letter == "m":
            letter = "a" if after in MAY_BE_NOUN or (after == "c" and raw[place + 2] in "am") else "n"
            if before == "x" and letter == "n":
                letter = "a"
            elif before == "i" and place > 1 and words[place - 2] == "made":
                letter = "n"
        elif letter == "i":
            if word in PARTICLES and after not in PHRASE_START and not (after == "e" and raw[place + 2] in "nN"):
                letter = "r"
            elif word == "like" and before == "x":
                letter = "i"
        elif letter == "q":
            if (word == "one" and (before == "d" or after == "s")) or (
                after not in NOMINAL and after not in "dvmo" and word not in ("only", "just", "about")
            ):
                letter = "p"
        elif letter == "g":
            letter = judge_ing(words, found, raw, place, before, after)
        elif letter == "s":
            letter = "V" if is_verb_in_s(found, place, before, after, finite) else "N"
        elif letter == "S":
            verb = before in "nw" and not finite and (after in "dvpq" or (after in "itr" and does(words[place - 1])))
            letter = "V" if verb and not counted(found, place) else "N"
        elif letter == "b":
            letter = judge_base(words, found, place, before, after, finite, several or joined)
        elif letter == "e":
            letter = judge_participle(words, raw, place, before, after, finite)
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
                outside, relative = finite, True
                finite = joined = False
                several = before == "N"
                begun = True
        elif letter == "u":
            if word == "as" and not clause_follows(words, raw, place):
                letter = "i"
            elif word == "so" and after in "ar":
                letter = "r"
            else:
                finite = joined = several = begun = False
        elif letter == "v":
            if word == "her" and after not in NOMINAL and after not in "mq":
                letter = "p"
        elif letter == "t":
            if after == "b" or (after in "ne" and words[place + 1] in _BASES):
                letter = "T"
            else:
                letter = "i" if after in PHRASE_START else "r"
        elif letter == "h":
            letter = "h" if after == "x" else "r"
        elif letter == "c" or letter == ",":
            joined = True
            if after in "dv" and finite:  # perhaps a new clause
                finite = several = begun = False
        if letter == "V":
            finite = True
        if finite and relative:  # it has its verb; the clause around it may still want one
            finite, relative = outside, False
        elif not begun and letter in "nN" and raw[place + 1] not in "nN":
            begun, several = True, letter == "N" or word in NOUN_COLLECTIVES
        found[place] = before = letter
        place += 1
    return found


_BASES = frozenset(word for word, letter in CLASSES.items() if letter == "b") | {
    *("be", "have", "do", "cover", "board", "hit", "cut", "set", "spread", "split", "face", "pet", "box", "water")
}
