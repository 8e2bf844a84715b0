"""Concepts, and questions about how two of them are related, which need no picture.

A *concept* is a word that is true of some things: "red", "crimson", "ball", and also what is above them ("animal",
"warm") and what things have ("wheel"). A *metaconcept* holds between two concepts: synonym, hypernym, same kind,
meronym (part of) and instance of. `concepts.yaml` has the ontology, `catalogue.yaml` the words that mean the same.

Questions are split by pairs: a pair in dev or test is in no question of train, while both of its concepts are. The
false pairs of a metaconcept are its true ones with their second members exchanged, so that in every split each concept
stands on each side in as many true pairs as false ones: the words by themselves say nothing of the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

from saccade.core.config import load_table
from saccade.core.errors import SaccadeError, not_among
from saccade.world.dice import Dice
from saccade.world.grammar import ATTRIBUTES, article

_TABLES = load_table(Path(__file__).with_name("concepts.yaml"))
ATTRIBUTE_NOUNS: dict[str, str] = _TABLES["attributes"]
PARTS: dict[str, str] = {name: row["said"] for name, row in _TABLES["parts"].items()}
SAID: dict[str, str] = {name: row["said"] for name, row in _TABLES["families"].items() if "said" in row}


class Concept(NamedTuple):
    """A word, and the things it is true of: those with one of these values of an attribute."""

    word: str
    attribute: str  # kind, colour, size or material
    values: frozenset[str]  # of the catalogue
    level: Literal["basic", "family", "part"]


def _concepts() -> Iterator[Concept]:
    for attribute, words in ATTRIBUTES.items():
        for value, same in words.items():
            for word in dict.fromkeys((value, *same)):
                yield Concept(word, attribute, frozenset((value,)), "basic")
    for name, row in _TABLES["families"].items():
        yield Concept(name, row["attribute"], frozenset(_below(name)), "family")
    for name, row in _TABLES["parts"].items():
        yield Concept(name, "kind", frozenset(row["of"]), "part")


def _below(family: str) -> Iterator[str]:
    for name in _TABLES["families"][family]["of"]:
        yield from _below(name) if name in _TABLES["families"] else (name,)


CONCEPTS: dict[str, Concept] = {concept.word: concept for concept in _concepts()}
WORDS: dict[str, tuple[str, ...]] = {  # all words of a value of the catalogue, its name the first
    value: tuple(dict.fromkeys((value, *words))) for table in ATTRIBUTES.values() for value, words in table.items()
}

METACONCEPTS = ("synonym", "hypernym", "same_kind", "meronym", "instance_of")
SPLITS = ("train", "dev", "test")
_RING_STEPS = {"kind": 4, "colour": 6, "material": 5, "size": 3}  # kinds must be less than half of all
MOST_PAIRS = 7  # true ones of a hypernym or a part, so that there are false ones for each
_TEXTS: dict[str, tuple[str, ...]] = {
    "synonym": (
        "is <1> a synonym of <2>?",
        "do <1> and <2> mean the same?",
        "is <1> another word for <2>?",
    ),
    "hypernym": ("is <1> a hypernym of <2>?", "is <a2> a kind of <1>?", "does <1> include <2>?"),
    "same_kind": (
        "is <1> the same kind of thing as <2>?",
        "are <1> and <2> the same kind of concept?",
        "do <1> and <2> describe the same attribute?",
    ),
    "meronym": ("is <1> a meronym of <2>?", "is <a1> a part of <a2>?", "does <a2> have <a1>?"),
    "instance_of": ("is <2> an instance of <1>?", "is <2> <an1>?", "is <2> a word for <an1>?"),
}


class MetaQuestion(NamedTuple):
    """Whether a metaconcept holds between two concepts, e.g. whether `first` is a hypernym of `second`."""

    kind: str  # one of METACONCEPTS
    first: str  # the more general one: the hypernym, the part's name, the attribute's noun
    second: str
    text: str
    answer: str  # yes or no


def holds(metaconcept: str, first: str, second: str) -> bool:
    """The truth about a pair of concepts (for `instance_of`, the first is an attribute's noun)."""
    if metaconcept == "instance_of":
        attribute = next((name for name, noun in ATTRIBUTE_NOUNS.items() if noun == first), None)
        concept = CONCEPTS.get(second)
        return concept is not None and concept.level == "basic" and concept.attribute == attribute
    if first not in CONCEPTS or second not in CONCEPTS or first == second:
        return False
    one, other = CONCEPTS[first], CONCEPTS[second]
    if metaconcept == "same_kind":
        return one.attribute == other.attribute and one.level == other.level == "basic"
    if metaconcept == "synonym":
        return one.level == other.level == "basic" and one.values == other.values
    if metaconcept == "hypernym":
        return one.level == "family" and other.level != "part" and other.values < one.values
    return one.level == "part" and other.level == "basic" and other.values <= one.values


def metaconcept_questions(split: str, seed: int = 0) -> tuple[MetaQuestion, ...]:
    """The questions of a split, half of each metaconcept's true. Another seed splits the pairs in another way."""
    if split not in SPLITS:
        raise SaccadeError(f"metaconcept questions have no split {not_among(split, SPLITS)}")
    return _all_questions(seed)[split]


@cache
def _all_questions(seed: int) -> dict[str, tuple[MetaQuestion, ...]]:
    made: dict[str, list[MetaQuestion]] = {split: [] for split in SPLITS}
    seen: set[str] = set()  # concepts in questions of train
    for metaconcept in ("same_kind", "instance_of", "hypernym", "meronym", "synonym"):
        dice = Dice("metaconcepts", seed, metaconcept)
        parts = _split_pairs(_true_pairs(metaconcept, dice), seen, dice)
        used = {frozenset(pair) for pairs in parts.values() for pair in pairs}
        for split, pairs in parts.items():
            true, false = _balanced(metaconcept, pairs, used, dice)
            used |= {frozenset(pair) for pair in false}
            for answer, asked in (("yes", true), ("no", false)):
                for first, second in asked:
                    text = _say(dice.pick(_TEXTS[metaconcept]), first, second)
                    made[split].append(MetaQuestion(metaconcept, first, second, text, answer))
    return {split: tuple(Dice("order", seed, split).shuffled(questions)) for split, questions in made.items()}


def _true_pairs(metaconcept: str, dice: Dice) -> list[tuple[str, str]]:
    """In an order in which neighbours have the same attribute, so that each split gets its share of all."""
    basic: dict[str, list[str]] = {name: [] for name in ATTRIBUTES}
    for concept in CONCEPTS.values():
        if concept.level == "basic":
            basic[concept.attribute].append(concept.word)
    if metaconcept == "same_kind":  # each word with the next few in a ring: as often as any other of its attribute
        pairs = []
        for attribute, words in basic.items():
            ring = dice.shuffled(words)
            steps = range(1, 1 + _RING_STEPS[attribute])
            pairs += [(a, ring[(n + step) % len(ring)]) for step in steps for n, a in enumerate(ring)]
    elif metaconcept == "instance_of":
        others = sum(len(words) for name, words in basic.items() if name != "kind")
        basic["kind"] = dice.shuffled(basic["kind"])[: others * 3 // 4]
        pairs = [(ATTRIBUTE_NOUNS[name], word) for name, words in basic.items() for word in dice.shuffled(words)]
    else:
        found = combinations(CONCEPTS, 2) if metaconcept == "synonym" else _ordered_pairs()
        true = dice.shuffled([pair for pair in found if holds(metaconcept, *pair)])
        true = [pair for n, pair in enumerate(true) if sum(a == pair[0] for a, _ in true[:n]) < MOST_PAIRS]
        pairs = sorted(true, key=lambda pair: (CONCEPTS[pair[0]].attribute, pair[0]))
    symmetric = metaconcept in ("synonym", "same_kind")
    return [pair[::-1] if symmetric and dice.chance(0.5) else pair for pair in pairs]


def _ordered_pairs() -> Iterator[tuple[str, str]]:
    return ((a, b) for a in CONCEPTS for b in CONCEPTS)


def _split_pairs(pairs: Sequence[tuple[str, str]], seen: set[str], dice: Dice) -> dict[str, list[tuple[str, str]]]:
    """One in five to dev and to test, but never a concept that train does not know."""
    parts: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    turn = dice.below(5)
    for pair in pairs:
        split = "train" if not seen.issuperset(pair) else ("train", "dev", "train", "test", "train")[turn % 5]
        turn += split != "train" or seen.issuperset(pair)
        parts[split].append(pair)
        seen |= set(pair) if split == "train" else set()
    return parts


def _balanced(
    metaconcept: str, pairs: list[tuple[str, str]], used: set[frozenset[str]], dice: Dice
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The pairs, and as many false ones, none `used`: their first members with the second members of others.

    Where no exchange makes all of them false (most animals have eyes and legs), a pair is left out.
    """
    while True:
        seconds = dice.shuffled([second for _, second in pairs])
        for _ in range(20 * len(pairs)):
            false = [(first, second) for (first, _), second in zip(pairs, seconds, strict=True)]
            counts = Counter(map(frozenset, false))
            bad = [
                n
                for n, pair in enumerate(false)
                if pair[0] == pair[1]
                or frozenset(pair) in used
                or counts[frozenset(pair)] > 1
                or holds(metaconcept, *pair)
            ]
            if not bad:
                return pairs, false
            n, m = dice.pick(bad), dice.below(len(pairs))
            seconds[n], seconds[m] = seconds[m], seconds[n]
        out = dice.pick(bad)
        pairs = pairs[:out] + pairs[out + 1 :]


def _name(concept: str) -> str:
    row = _TABLES["families"].get(concept, {})
    return str(row.get("noun", concept))


def _with_article(concept: str) -> str:
    """ "a dog", but "red": only toys, their families and their parts are counted."""
    known = CONCEPTS.get(concept)
    return f"{article(concept)} {concept}" if known is not None and known.attribute == "kind" else _name(concept)


def _say(template: str, first: str, second: str) -> str:
    text = template.replace("<an1>", f"{article(first)} {first}")
    for n, concept in (("1", first), ("2", second)):
        text = text.replace(f"<a{n}>", _with_article(concept)).replace(f"<{n}>", _name(concept))
    return text


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    names = {_name(c) for c in CONCEPTS} | set(ATTRIBUTE_NOUNS.values())
    slot = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    found = []
    for metaconcept, texts in _TEXTS.items():
        for text in texts:
            pattern = re.escape(text.removesuffix("?"))
            for mark, articles in (("1", ""), ("2", ""), ("a1", "(?:an? )?"), ("a2", "(?:an? )?"), ("an1", "an? ")):
                pattern = pattern.replace(f"<{mark}>", f"{articles}(?P<c{mark[-1]}>{slot})")
            found.append((metaconcept, re.compile(rf"{pattern} *\??")))
    return tuple(found)


def parse_metaconcept(text: str) -> MetaQuestion | None:
    """A question about two concepts in the words of these questions, with its true answer; None if it is none."""
    plain = " ".join(text.lower().split())
    by_name = {_name(c): c for c in CONCEPTS}
    for metaconcept, pattern in _patterns():
        match = pattern.fullmatch(plain)
        if match:
            first, second = (by_name.get(match[c], match[c]) for c in ("c1", "c2"))
            return MetaQuestion(metaconcept, first, second, text, "yes" if holds(metaconcept, first, second) else "no")
    return None
