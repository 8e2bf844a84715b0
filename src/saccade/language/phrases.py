"""The thing and its attributes in an English noun phrase, without a tagger: "two young men" is a man, young.

Phrases that annotators marked ("a brown and white dog", "a set of stairs") are short and regular: the name is the last
noun before whatever follows it, what stands before it describes it. `docs/data/photos.md` says how often that is right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from saccade.language.caption_words import (
    ADJECTIVES,
    BEFORE_NOUN_ONLY,
    COLOUR_WORDS,
    SHADES,
    SPELLINGS,
    UNSAID_WORDS,
    WORDS,
    singular,
    word_table,
)

PARTITIVES, NAMELESS, SKIPPED, ENDS_NOUN = (
    word_table(WORDS[name]) for name in ("partitives", "nameless", "skipped", "ends_noun")
)
AFTER_NOUN = (ADJECTIVES - BEFORE_NOUN_ONLY) | {"outdoors", "indoors", "outside"}
COMPOUNDS: dict[tuple[str, ...], str] = {
    tuple(words.split()): name for words, name in (each.split("/") for each in WORDS["compounds"].split(", "))
}


@dataclass(frozen=True)
class NounPhrase:
    """What a phrase names, in the singular, and what it says of it."""

    name: str | None
    attributes: tuple[str, ...] = ()


def read_phrase(words: Sequence[str]) -> NounPhrase:
    """Name None where no thing is named: pronouns, colours alone, "a man and a woman"."""
    return _read(tuple(words))


@lru_cache(maxsize=1 << 16)
def _read(words: tuple[str, ...]) -> NounPhrase:
    words = tuple(_clean(words))
    described: list[str] = []
    while "of" in words:
        place = words.index("of")
        before, after = words[:place], words[place + 1 :]
        if not after or (before and before[-1] not in PARTITIVES):
            words = before
            break
        described += [w for w in before[:-1] if w in COLOUR_WORDS]
        words = after
    if words[:1] == ("no",):  # "no shirt" is not there
        return NounPhrase(None)
    stop = next((n for n, word in enumerate(words) if n and word in ENDS_NOUN), len(words))
    parts = [_trailing_first(part) for part in _conjuncts(words[:stop])]
    names = [_noun(part) for part in parts]
    named = [n for n, name in enumerate(names) if name is not None]
    modifiers: list[str] = []
    for part, name in zip(parts, names, strict=True):
        modifiers += part if name is None else part[:-2] if tuple(part[-2:]) in COMPOUNDS else part[:-1]
    attributes = tuple(dict.fromkeys([*described, *_attributes(modifiers)]))
    if not named:
        return NounPhrase(None, attributes)
    if len({names[n] for n in named}) > 1:
        return NounPhrase(None)
    if len(named) > 1:  # "a black dog and a white dog": two things, and which is which is open
        return NounPhrase(names[named[0]])
    return NounPhrase(names[named[0]], attributes)


def chain_name(phrases: Iterable[NounPhrase]) -> NounPhrase | None:
    """What several people call the same thing: the name most of them use (of equals, the first), and all they said."""
    phrases = [phrase for phrase in phrases if phrase.name is not None]
    if not phrases:
        return None
    name, _ = Counter(phrase.name for phrase in phrases).most_common(1)[0]
    return NounPhrase(name, tuple(dict.fromkeys(a for phrase in phrases for a in phrase.attributes)))


def _clean(words: Sequence[str]) -> Iterable[str]:
    for word in words:
        word = word.lower().replace("’", "'").strip('"`.!?;:()[]#*') or ","
        if word == "," or not re.search(r"[a-z]", word):
            yield "," if word == "," else "one"  # "2 dogs": a number describes nothing
            continue
        if word.endswith("-hair"):
            yield from (SPELLINGS.get(part, part) for part in word.split("-"))
            continue
        word = SPELLINGS.get(word, word)
        parts = re.split(r"-and-|/", word)
        if len(parts) > 1 and all(SPELLINGS.get(p, p) in ADJECTIVES for p in parts):  # black-and-white
            yield from (SPELLINGS.get(p, p) for p in parts)
        else:
            yield re.sub(r"-colou?red$", "", word) if word.endswith("ored") and word not in ADJECTIVES else word


def _conjuncts(words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("and", "or", ",", "&"):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _trailing_first(words: list[str]) -> list[str]:
    """ "his mouth open" as "open his mouth": what follows a noun describes it like what comes before."""
    end = len(words)
    while end and words[end - 1] in AFTER_NOUN:
        end -= 1
    return words[end:] + words[:end] if 0 < end < len(words) and _noun(words[:end]) is not None else words


def _noun(words: list[str]) -> str | None:
    """The name at the end of some words, or None where they only describe ("brown" in "brown and white dog")."""
    words = [word for word in words if word != "'s"]
    if not words:
        return None
    if len(words) > 1 and (words[-2], words[-1]) in COMPOUNDS:
        return COMPOUNDS[words[-2], words[-1]]
    last = words[-1].removesuffix("'")
    if len(words) > 1 and (words[-2], singular(last)) in COMPOUNDS:
        return COMPOUNDS[words[-2], singular(last)]
    thing = last in BEFORE_NOUN_ONLY and (last not in COLOUR_WORDS or words[0] in SKIPPED)  # "an orange", "wood"
    if last in ADJECTIVES and not thing:
        return None
    described = last in ("area", "top") and words[-2:-1] and words[-2] in ADJECTIVES  # "a wooded area", "a red top"
    if last in SKIPPED or (last in NAMELESS and not described):
        return None
    return singular(last)


def _attributes(words: list[str]) -> list[str]:
    if "'s" in words:  # "the woman's red hat": what stands before the owner describes the owner
        words = words[len(words) - words[::-1].index("'s") :]
    owners = [n for n, word in enumerate(words) if word.endswith(("'s", "s'"))]
    words = words[owners[-1] + 1 :] if owners else words
    found: list[str] = []
    for n, word in enumerate(words):
        shade = word in SHADES and any(w in COLOUR_WORDS and w not in SHADES for w in words[n + 1 : n + 2])
        if word in ADJECTIVES and word not in UNSAID_WORDS and not shade:
            found.append("wooden" if word == "wood" else word)
    return found
