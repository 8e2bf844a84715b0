"""A reader of captions that shares only the lexicon with their writer: words → attributes, phrases → relations."""

from __future__ import annotations

import itertools

from saccade.language import tokenise
from saccade.world import Phrase, Scene, SceneCaption, SceneRelation
from saccade.world.grammar import COLOUR_WORDS, MATERIAL_WORDS, NOUNS, PASSIVES, PREPOSITIONS, SIZE_WORDS, VERBS, plural


def _reverse(table: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {word: value for value, words in table.items() for word in words}


KIND_OF = _reverse(NOUNS) | {plural(w): k for k, words in NOUNS.items() for w in words}
COLOUR_OF, SIZE_OF, MATERIAL_OF = _reverse(COLOUR_WORDS), _reverse(SIZE_WORDS), _reverse(MATERIAL_WORDS)
MATERIAL_OF["wood"] = "wood"
NUMBER_OF = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}

ACTIVE = _reverse(PREPOSITIONS)
for _predicate, _verbs in VERBS.items():
    for _finite, _participle in _verbs:
        ACTIVE |= {_finite: _predicate, _participle: _predicate}
PASSIVE = _reverse(PASSIVES)


def said(words: list[str]) -> dict[str, str]:
    """The attributes a phrase states."""
    found = {}
    for word in words:
        for name, table in (("kind", KIND_OF), ("colour", COLOUR_OF), ("size", SIZE_OF), ("material", MATERIAL_OF)):
            if word in table:
                assert name not in found, f"{words} states two of {name}"
                found[name] = table[word]
    return found


def check_phrases(caption: SceneCaption, scene: Scene) -> None:
    """Every attribute said in a phrase is an attribute of its things; counts are right."""
    words = tokenise(caption.text)
    covered = set()
    for phrase in caption.phrases:
        part = words[phrase.start : phrase.end]
        assert part, caption
        stated = said(part)
        assert stated, (caption.text, part)
        for i in phrase.things:
            for name, value in stated.items():
                assert getattr(scene.things[i], name) == value, (caption.text, part, scene.things[i])
        for word in part:
            if word in NUMBER_OF:
                fitting = [t for t in scene.things if all(getattr(t, n) == v for n, v in stated.items())]
                assert NUMBER_OF[word] == len(fitting) == len(phrase.things)
        covered |= set(range(phrase.start, phrase.end))
    for at, word in enumerate(words):  # nothing is said of a thing outside a phrase
        if word in KIND_OF or word in COLOUR_OF:
            assert at in covered, (caption.text, word)


def relations_read(caption: SceneCaption) -> list[SceneRelation]:
    """Relations between neighbouring phrases, found by the words between them."""
    words = tokenise(caption.text)
    nouns = [p for p in caption.phrases if set(words[p.start : p.end]) & set(KIND_OF)]
    found = []
    first = words[: nouns[0].start] if nouns else []
    fronted = _predicate(first, ACTIVE)
    if fronted and len(nouns) == 2:
        return [SceneRelation(nouns[1].things[0], fronted, nouns[0].things[0])]
    head: Phrase | None = None
    for a, b in itertools.pairwise(nouns):
        between = words[a.end : b.start]
        passive, active = _predicate(between, PASSIVE), _predicate(between, ACTIVE)
        if passive:
            found.append(SceneRelation(b.things[0], passive, a.things[0]))
            continue
        if not active:
            head = None
            continue
        conjoined = between[0] == "and" and head is not None  # "A is left of B and chases C": A chases
        subject = head if conjoined and head is not None else a
        found.append(SceneRelation(subject.things[0], active, b.things[0]))
        if not conjoined and between[0] not in ("that", "which", ","):
            head = a
    return found


def _predicate(words: list[str], table: dict[str, str]) -> str | None:
    """The longest wording at the end of `words`."""
    for start in range(len(words)):
        if " ".join(words[start:]) in table:
            return table[" ".join(words[start:])]
    return None
