"""Prepositions of several words as one: in "a dog in front of a car" the car depends on the dog, not on a front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from saccade.language.caption_words import COMPOUND_PREPOSITIONS

_COMPOUND: dict[str, list[tuple[str, ...]]] = {}
for _words in sorted((tuple(p.split()) for p in COMPOUND_PREPOSITIONS), key=len, reverse=True):
    _COMPOUND.setdefault(_words[0], []).append(_words)
FIRST_OF_SEVERAL = frozenset(_COMPOUND)


def compound_length(tokens: Sequence[str], place: int) -> int:
    """How many words the compound preposition at `place` has; 0 where there is none."""
    for words in _COMPOUND.get(tokens[place], ()):
        if tuple(tokens[place : place + len(words)]) == words:
            return len(words)
    return 0


def _spans(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    place = 0
    while place < len(tokens):
        length = compound_length(tokens, place)
        if length:
            yield place, place + length
        place += length or 1


def collapse_prepositions(
    tokens: Sequence[str], heads: Sequence[int], labels: Sequence[str], tags: Sequence[str]
) -> tuple[Sequence[int], Sequence[str]]:
    """Heads and labels with each compound preposition a `case` of its noun, its other words `fixed` to the first."""
    for start, end in _spans(tokens):
        if all(labels[place] == "fixed" for place in range(start + 1, end)):
            continue
        inside = range(start, end)
        noun = next((p for p in range(end, len(tokens)) if heads[p] in inside and tags[p] != "PUNCT"), -1)
        if noun < 0:  # its words may hang on the noun already
            noun = next((heads[p] for p in inside if heads[p] >= end and labels[p] == "case"), -1)
        if noun < 0:
            continue
        above = next((p for p in inside if heads[p] not in inside and heads[p] != noun), -1)
        heads, labels = list(heads), list(labels)
        if heads[noun] in inside:
            if above < 0:
                continue
            outer, kept = heads[above], labels[above].startswith(("acl", "advcl", "conj", "root", "parataxis"))
            heads[noun] = outer
            labels[noun] = labels[above] if kept else "nmod" if tags[outer] in ("NOUN", "PROPN") else "obl"
        heads[start], labels[start] = noun, "case"
        for place in range(start + 1, end):
            heads[place], labels[place] = start, "fixed"
        for place in range(len(tokens)):  # what else hung on its words hangs on the noun
            if place not in inside and heads[place] in inside:
                heads[place] = noun
    return heads, labels
