"""From a dependency tree to a scene graph: things, what they are like, and how they stand to each other.

Reads trees of any parser that labels as Universal Dependencies do. "A group of people" are people, "in front of" is one
relation, what is "made of wood" has an attribute; nothing is made of what is not there ("no shirt") or of pronouns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from saccade.language.caption_words import ADJECTIVES, BE, COMPOUND_PREPOSITIONS, PERCEIVERS, RELATIVES
from saccade.language.phrases import PARTITIVES

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


PICTURES = frozenset(("picture", "photo", "photograph", "image", "shot", "view", "closeup", "close-up"))
FRAMES = PARTITIVES | PICTURES  # "a picture of a dog" shows a dog, and is no part of its name
_NOUNS = frozenset(("NOUN", "PROPN"))
_PART_OF_NAME = frozenset(("compound", "flat", "fixed", "goeswith", "flat:name"))
_BEFORE_NOUN = frozenset(("det", "amod", "nummod", "compound", "nmod:poss", "det:predet", "flat"))
_LIKE_HEAD = frozenset(("conj", "advcl", "xcomp", "ccomp", "parataxis"))


@dataclass(frozen=True)
class Object:
    """A thing: where its noun stands, and the words from `start` to `end` (exclusive) that name it."""

    place: int
    name: str
    start: int
    end: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Attribute:
    object: Object
    word: str
    place: int


@dataclass(frozen=True)
class Relation:
    """Predicates are words as written, without auxiliaries: ("left", "of"), ("chases",), ("held", "by")."""

    subject: Object
    predicate: tuple[str, ...]
    object: Object
    passive: bool = False  # the object does it to the subject


@dataclass(frozen=True)
class SceneGraph:
    objects: tuple[Object, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    relations: tuple[Relation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Things in order; attributes and relations name them by their number, from 0."""
        number = {thing: n for n, thing in enumerate(self.objects)}
        said: dict[Object, list[str]] = {thing: [] for thing in self.objects}
        for attribute in self.attributes:
            said[attribute.object].append(attribute.word)
        return {
            "objects": [
                {"name": t.name, "phrase": " ".join(t.words), "place": t.place, "attributes": said[t]}
                for t in self.objects
            ],
            "relations": [
                [number[r.subject], " ".join(r.predicate), number[r.object], *(["passive"] if r.passive else [])]
                for r in self.relations
            ],
        }


def read_graph(tokens: Sequence[str], heads: Sequence[int], labels: Sequence[str], tags: Sequence[str]) -> SceneGraph:
    """The scene graph of a tree."""
    heads, labels = collapse_prepositions(tokens, heads, labels, tags)
    return _Tree(tokens, heads, labels, tags).graph()


class _Tree:
    def __init__(self, tokens: Sequence[str], heads: Sequence[int], labels: Sequence[str], tags: Sequence[str]) -> None:
        self.tokens, self.heads, self.labels, self.tags = tokens, heads, labels, tags
        self.below: list[list[int]] = [[] for _ in tokens]
        for place, head in enumerate(heads):
            if head >= 0:
                self.below[head].append(place)

    def graph(self) -> SceneGraph:
        objects = self.objects
        attributes = {(a.object, a.word, a.place): a for a in self._attributes()}
        relations = dict.fromkeys(r for r in self._relations() if r.subject != r.object)
        return SceneGraph(tuple(objects[p] for p in sorted(objects)), tuple(attributes.values()), tuple(relations))

    def _case(self, place: int) -> tuple[str, ...]:
        """The words of the preposition of a noun."""
        found = [c for c in self.below[place] if self.labels[c] == "case" and c < place]
        return tuple(
            self.tokens[w] for c in found for w in (c, *(f for f in self.below[c] if self.labels[f] == "fixed"))
        )

    # Things

    @cached_property
    def inner(self) -> dict[int, int]:
        """ "a group of people": the place of group → the place of people."""
        found = {}
        for place, token in enumerate(self.tokens):
            if token in FRAMES and self.tags[place] in _NOUNS:
                for child in self.below[place]:
                    if self.labels[child] == "nmod" and self.tags[child] in _NOUNS and self._case(child) == ("of",):
                        found[place] = child
        return found

    def _meant(self, place: int) -> int:
        while place in self.inner:
            place = self.inner[place]
        return place

    @cached_property
    def objects(self) -> dict[int, Object]:
        """By the place of the noun."""
        outer = {inner: place for place, inner in self.inner.items()}
        found = {}
        for place, tag in enumerate(self.tags):
            if tag not in _NOUNS or place in self.inner or self.labels[place] in _PART_OF_NAME:
                continue
            if self._material(place) or any(self.tokens[c] == "no" for c in self.below[place]):
                continue
            start = self._start(place)
            around = place
            while around in outer and self.tokens[outer[around]] not in PICTURES:
                around = outer[around]
                start = min(start, self._start(around))
            words = tuple(self.tokens[start : place + 1])
            found[place] = Object(place, self.tokens[place], start, place + 1, words)
        return found

    def _start(self, place: int) -> int:
        """Where the words before a noun begin that belong to it."""
        first = place
        for child in reversed(self.below[place]):
            if child < place and self.labels[child] in _BEFORE_NOUN and self._end(child) == first:
                first = self._first(child)
        return first

    def _first(self, place: int) -> int:
        return min([place, *(self._first(c) for c in self.below[place] if c < place)])

    def _end(self, place: int) -> int:
        return max([place + 1, *(self._end(c) for c in self.below[place] if c > place)])

    def _material(self, place: int) -> int:
        """Where the word "made" stands for what something is made of; 0 for none."""
        head = self.heads[place]
        made = head >= 0 and self.tokens[head] == "made" and self._case(place) == ("of",)
        return head if made and self.labels[place] in ("obl", "nmod") else 0

    def _things(self, place: int, before: int = 1 << 30) -> Iterator[Object]:
        """The thing at a place, and those joined to it by "and", unless what is said of it comes `before` them."""
        if self.tokens[place] in RELATIVES and self.tags[place] not in _NOUNS:
            place = self._referred(place)
            if place < 0:
                return
        meant = self._meant(place)
        if meant in self.objects:
            yield self.objects[meant]
        for each in {place, meant}:
            for child in self._joined(each):
                if child < before and not self._case(child):
                    yield from self._things(child)

    def _referred(self, place: int) -> int:
        """The noun that "that" stands for: the one its clause describes."""
        for _ in range(4):
            place, label = self.heads[place], self.labels[self.heads[place]]
            if place < 0 or label.startswith("acl"):
                break
        return self.heads[place] if place >= 0 and self.labels[place].startswith("acl") else -1

    def _joined(self, place: int) -> list[int]:
        return [
            c
            for c in self.below[place]
            if self.labels[c] == "conj" and self.tags[c] in _NOUNS and not self._has_subject(c)
        ]

    # Attributes

    def _attributes(self) -> Iterator[Attribute]:
        for place, label in enumerate(self.labels):
            head = self.heads[place]
            if label == "amod" or (label == "compound" and self.tokens[place] in ADJECTIVES):
                owner = self.objects.get(self._meant(head))
                if owner is not None:
                    yield from (Attribute(owner, self.tokens[w], w) for w in self._with_joined(place))
            elif self._material(place):
                for thing in self._subjects(head):
                    yield Attribute(thing, self.tokens[place], place)
            elif self.tags[place] == "ADJ" and (self._has_subject(place) or label.startswith("acl")):
                for thing in self._subjects(place):
                    yield from (Attribute(thing, self.tokens[w], w) for w in self._with_joined(place))

    def _with_joined(self, place: int) -> list[int]:
        """An adjective, and those after "and"."""
        joined = [c for c in self.below[place] if self.labels[c] == "conj" and self.tags[c] == "ADJ"]
        return [place, *(w for c in joined if not self._has_subject(c) for w in self._with_joined(c))]

    # Relations

    def _has_subject(self, place: int) -> bool:
        return any(self.labels[c].startswith("nsubj") for c in self.below[place])

    def _subjects(self, place: int, depth: int = 0) -> list[Object]:
        """Who does what the predicate at `place` says."""
        head, label = self.heads[place], self.labels[place]
        for child in self.below[place]:
            if self.labels[child].startswith("nsubj"):
                if label.startswith("acl") and self.tokens[child] in ("that", "which", "who", "whom"):
                    break
                return list(self._things(child))
        if head < 0 or depth > 30:
            return []
        if label.startswith("acl"):
            return list(self._things(head, place))
        if label not in _LIKE_HEAD:
            return []
        if self.tags[head] in _NOUNS and not self._is_predicate(head):
            return list(self._things(head)) if label != "parataxis" else []
        return self._subjects(head, depth + 1)

    def _is_predicate(self, place: int) -> bool:
        """Whether a noun stands for what is said of another: "is left of *the ball*"."""
        return any(self.labels[c] == "cop" or self.labels[c].startswith("nsubj") for c in self.below[place])

    def _relations(self) -> Iterator[Relation]:
        for place, tag in enumerate(self.tags):
            label, head = self.labels[place], self.heads[place]
            if tag == "VERB" or (tag == "AUX" and not label.startswith(("aux", "cop"))) or tag == "ADJ":
                yield from self._of_verb(place)
            elif tag not in _NOUNS:
                continue
            elif label == "nmod:poss":
                owners = list(self._things(place))
                yield from (Relation(owner, ("'s",), thing) for thing in self._things(head) for owner in owners)
            elif self._is_predicate(place):
                for case, thing in self._phrases(place):
                    yield from (Relation(s, case, thing) for s in self._subjects(place) if case)
            elif label == "nmod" and place not in self.inner.values():
                for case, thing in self._phrases(place):
                    yield from (Relation(s, case, thing) for s in self._things(head) if case)

    def _phrases(self, place: int, case: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Object]]:
        """A noun with its preposition, and those joined to it with theirs, or under the same."""
        case = self._case(place) or case
        meant = self._meant(place)
        if meant in self.objects:
            yield case, self.objects[meant]
        for each in {place, meant}:
            for child in self._joined(each):
                yield from self._phrases(child, case)

    def _of_verb(self, place: int) -> Iterator[Relation]:
        subjects = self._subjects(place)
        particles = (self.tokens[c] for c in self.below[place] if self.labels[c] == "compound:prt")
        words = () if self.tokens[place] in BE else (self.tokens[place], *particles)
        subject = next((c for c in self.below[place] if self.labels[c] == "nsubj"), -1)
        shown = subject >= 0 and self.tokens[subject] in PERCEIVERS
        if shown:  # "left of the ball we see a cube" is said of the cube
            subjects, words = [t for c in self.below[place] if self.labels[c] == "obj" for t in self._things(c)], ()
        for child in self.below[place]:
            label = self.labels[child]
            if label in ("obj", "iobj", "dobj") and not shown:
                yield from (Relation(s, words, o) for o in self._things(child) for s in subjects if words)
            elif label.startswith(("obl", "nmod")) and not self._material(child):
                for case, thing in self._phrases(child):
                    passive = case == ("by",) and self._passive(place)
                    yield from (Relation(s, words + case, thing, passive) for s in subjects if words + case)

    def _passive(self, place: int) -> bool:
        return any(self.labels[c] in ("aux:pass", "nsubj:pass") for c in self.below[place]) or (
            self.labels[place] == "acl" and not self.tokens[place].endswith("ing")
        )
