"""The words by which captions are read: adjectives by kind, closed classes and verbs (`words.yaml`), and base forms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from saccade.core.config import load_table

WORDS = load_table(Path(__file__).with_name("words.yaml"))


def word_table(text: str) -> frozenset[str]:
    return frozenset(text.split())


def word_pairs(text: str) -> dict[str, str]:
    """men/man women/woman → {"men": "man", "women": "woman"}"""
    return dict(pair.split("/") for pair in text.split())


COLOUR_WORDS = word_table(WORDS["adjectives"]["colours"])
SHADES = word_table("dark light bright pale neon")  # of a colour, where one follows: "light blue" is blue
ADJECTIVES = word_table(" ".join(WORDS["adjectives"].values()))
UNSAID_WORDS = word_table(WORDS["adjectives"]["unsaid"])
BEFORE_NOUN_ONLY = word_table(WORDS["before_noun_only"])
SPELLINGS = word_pairs(WORDS["spellings"])
IRREGULAR_PLURALS = word_pairs(WORDS["irregular_plurals"])
ONE_FORM = word_table(WORDS["one_form"])

OWNERS, PRONOUNS, PREPOSITIONS, RELATIVES = (
    word_table(WORDS["closed"][kind]) for kind in ("OWNER", "PRONOUN", "PREPOSITION", "RELATIVE")
)
PARTICLES = word_table(WORDS["particles"])
COMPOUND_PREPOSITIONS: tuple[str, ...] = tuple(WORDS["compound_prepositions"].split(", "))
BE = word_table("is are was were be been being am 's 're")
HAVE = word_table("has have had having")
MODALS = word_table("can could will would may might must shall should do does did ca wo")
NAMING_ING = word_table(WORDS["naming_ing"])
BEFORE_ING = word_table(WORDS["before_ing"])
WORN = word_table(WORDS["worn"])
NOUN_COLLECTIVES = word_table(WORDS["noun_collectives"])
STATES_OF_THINGS = word_table(WORDS["states_of_things"])
PERCEIVERS = word_table("we you i one")  # "we see a dog" speaks of the dog
ANIMATE = word_table(WORDS["animate"])
VERB_STEMS: tuple[str, ...] = tuple(WORDS["verb_stems"].split())
ONLY_VERBS = word_table(WORDS["only_verbs"])


class WordClass(str, Enum):
    """What a word is; as text, one letter."""

    __hash__ = str.__hash__  # quicker than that of an enumeration: classes are looked up for every word of a caption

    # As the tables have it
    DETERMINER = "d"
    OWNER = "v"  # his
    NUMBER = "q"
    ADJECTIVE = "a"
    MATERIAL = "m"  # adjective, or material noun: wood
    NOUN = "n"
    PLURAL = "N"
    PRONOUN = "p"
    ING = "g"
    PARTICIPLE = "e"
    PAST = "f"
    S_FORM = "s"  # verb in -s, or plural noun
    UNKNOWN_S = "S"  # in -s, and in no table
    BASE = "b"  # verb, or noun
    AUXILIARY = "x"
    OTHER = "o"
    PREPOSITION = "i"
    CONJUNCTION = "c"  # and, or
    SUBORDINATOR = "u"  # while, as
    RELATIVE = "w"  # who, that
    ADVERB = "r"
    TO = "t"
    THERE = "h"
    POSSESSIVE = "k"  # 's
    COMMA = ","
    MARK = "."  # any other mark
    # Once its neighbours are known
    FINITE = "V"
    DOING = "G"
    DONE = "E"
    INFINITIVE = "I"
    FIXED = "F"  # goes on with the preposition before it: "in *front of*"
    NAMES_VERB = "K"  # "*rock* climbing"
    TO_INFINITIVE = "T"


# The members by name: Python 3.11 looks a member of an enumeration up through a descriptor, ten times as long.
C = cast("type[WordClass]", SimpleNamespace(**WordClass.__members__))


def forms(stem: str) -> tuple[list[str], list[str], list[str]]:
    """The -s, -ing and -ed forms of a verb; where a last consonant may be doubled, both spellings."""
    if stem[-1] == "y" and stem[-2] not in "aeiou":
        return [stem[:-1] + "ies"], [stem + "ing"], [stem[:-1] + "ied"]
    third = stem + ("es" if stem.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    if stem.endswith("ie"):
        return [third], [stem[:-2] + "ying"], [stem + "d"]
    if stem[-1] == "e" and not stem.endswith(("ee", "oe", "ye")):
        return [third], [stem[:-1] + "ing"], [stem + "d"]
    roots = [stem, stem + stem[-1]] if stem[-1] not in "aeiouwxy" and stem[-2:-1] in "aeiou" else [stem]
    return [third], [r + "ing" for r in roots], [r + "ed" for r in roots]


def lexicon() -> dict[str, WordClass]:
    """Every word of the tables with its class; later tables win."""
    table: dict[str, WordClass] = {}
    for stem in VERB_STEMS:
        third, present, past = forms(stem)
        table[stem] = C.BASE
        table.update(dict.fromkeys(third, C.S_FORM) | dict.fromkeys(present, C.ING) | dict.fromkeys(past, C.PARTICIPLE))
    for name, kind in (("pasts", C.PAST), ("participles", C.PARTICIPLE)):
        table.update(dict.fromkeys(WORDS[name].split(), kind))
    spelt = {word for word, other in SPELLINGS.items() if other in ADJECTIVES}
    for word in ADJECTIVES | spelt | word_table(WORDS["more_adjectives"]):
        doing = word.endswith("ing")
        table[word] = C.ING if doing else C.PARTICIPLE if table.get(word) is C.PARTICIPLE else C.ADJECTIVE
    table.update(dict.fromkeys(BEFORE_NOUN_ONLY - COLOUR_WORDS, C.MATERIAL))
    table.update(dict.fromkeys(IRREGULAR_PLURALS.keys() | ONE_FORM, C.PLURAL))
    table.update(dict.fromkeys(BE | HAVE | MODALS, C.AUXILIARY))
    for tables in (WORDS["closed"], WORDS["exceptions"]):
        for name, words in tables.items():
            table.update(dict.fromkeys(words.split(), WordClass[name]))
    return table


@lru_cache(maxsize=1 << 14)
def singular(noun: str) -> str:
    """dogs → dog, children → child, glasses → glasses."""
    if noun in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun]
    if noun in ONE_FORM or len(noun) < 4 or not noun.endswith("s") or noun.endswith(("ss", "us", "is", "'s")):
        return noun
    if noun.endswith("men"):
        return noun[:-2] + "an"
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")):
        return noun[:-2]
    return noun[:-1]


def lemma(word: str, tag: str) -> str:
    """The base form of a word, by its part of speech (NOUN, VERB …) as parses give it."""
    if tag in ("NOUN", "PROPN"):
        return singular(word)
    if tag in ("VERB", "AUX"):
        return base_form(word)
    return SPELLINGS.get(word, word)


def base_form(word: str) -> str:
    """Of a verb; of a word that is no known form of one, the word."""
    return _bases().get(word, word)


def participle(verb: str) -> str:
    """The -ing form of a base form: a short verb with one vowel doubles its last consonant (sitting, wearing)."""
    doubled = len(re.findall("[aeiouy]+", verb)) == 1 and verb[-3:-2] not in "aeiou"
    return forms(verb)[1][-1 if doubled else 0]


def predicate_name(words: Sequence[str], passive: bool = False) -> str:
    """One name for a relation's predicate, as Visual Genome's are: "rides", "is riding" and "ridden by" are riding.

    A passive is named as what the other does; having is "with"; what is not a verb stays ("in front of").
    """
    words = [word for word in words if not (passive and word == "by")]
    if not words or words[0] in PREPOSITIONS or " ".join(words) in COMPOUND_PREPOSITIONS:
        return " ".join(words)
    base = base_form(words[0])
    if base == "have" or words[0] == "'s":
        return "with"
    present = words[0].endswith("ing") or words[0] in (base, *forms(base)[0])
    if base in VERB_STEMS and (passive or present):
        words[0] = participle(base)
    return " ".join(words)


@cache
def _bases() -> dict[str, str]:
    table: dict[str, str] = {}
    for base in sorted(VERB_STEMS, key=len):
        for form in (form for kind in forms(base) for form in kind):
            table.setdefault(form, base)
    return table | word_pairs(WORDS["irregular_verbs"]) | dict.fromkeys(BE, "be") | dict.fromkeys(HAVE, "have")
