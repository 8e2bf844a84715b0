"""Foils: a true caption made false by exchanging or replacing a few of its words, so that binding alone tells.

    nouns       two nouns of different things exchanged: a girl in a hat rides a horse → a horse in a hat rides a girl
    adjectives  what two different things are like, exchanged: a black dog and a white cat → a white dog and a black cat
    sides       the phrases on both sides of a relation: a brown dog chases a small cat → a small cat chases a brown dog
    replaced    one noun by another of its kind: a girl rides a horse → a girl rides a camel

The first three have the same words as the caption, so that a bag of words holds them equal. A foil has to be false for
the photo and grammatical, and rules see to that as far as the photo's captions allow: nothing symmetric is turned
round ("a man beside a woman"), nothing coordinated, nothing that may be called either way (man and guy). Number and
countability of what moves stay the same, so that verbs and articles still agree; a/an follow the word after them.
`docs/results/binding.md` says how many of two hundred were found good by reading.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias, get_args

from saccade.language.caption_words import COLOUR_WORDS, ONE_FORM, OWNERS, SHADES, WORDS, singular, word_table
from saccade.language.parsing import Parse, shared_parser
from saccade.language.parsing.scene_graph import Object, Relation
from saccade.language.phrases import NAMELESS

FoilKind: TypeAlias = Literal["nouns", "adjectives", "sides", "replaced"]
FOIL_KINDS: tuple[FoilKind, ...] = get_args(FoilKind)
WordForm: TypeAlias = Literal["one", "many", "mass"]

MIN_COUNT = 3  # phrases that name a thing by a word, before its kind is believed
MASS_BELOW = 0.1  # a noun that has a/an before it less often is not counted
MAX_CANDIDATES = 40  # of one kind and form: the frequent ones

_Entries: TypeAlias = Mapping[str, frozenset[int]]


def _entries(rows: Sequence[str]) -> _Entries:
    """Word → the numbers of the rows that have it."""
    found: dict[str, set[int]] = defaultdict(set)
    for number, row in enumerate(rows):
        for word in row.split():
            found[word].add(number)
    return {word: frozenset(numbers) for word, numbers in found.items()}


_TABLES = WORDS["foils"]
_FAMILIES, _ALIKE = _entries(_TABLES["families"]), _entries(_TABLES["alike"])
_SYMMETRIC, _ARTICLES, _EVENTS, _UNTOLD, _PEOPLE, _ANY_HUE = (
    word_table(_TABLES[name]) for name in ("symmetric", "articles", "events", "untold", "people", "any_hue")
)
_SYMMETRIC_PHRASES = [tuple(phrase.split()) for phrase in _TABLES["symmetric_phrases"].split(", ")]
_HUES = COLOUR_WORDS - SHADES
_OTHERS = ("sizes",), ("ages",), ("materials", "patterns")
_ADJECTIVE_CLASSES = _HUES, *(word_table(" ".join(WORDS["adjectives"][kind] for kind in kinds)) for kinds in _OTHERS)


@dataclass(frozen=True)
class Foil:
    kind: FoilKind
    true: str  # the caption, token by token
    text: str


@dataclass(frozen=True)
class NounKinds:
    """What nouns name, as phrases of a training set have it (people, clothing, animals …), and how they count."""

    types: Mapping[str, str]  # noun as written → its most frequent type
    forms: Mapping[str, WordForm]
    candidates: Mapping[
        tuple[str, WordForm], tuple[str, ...]
    ]  # frequent nouns of a type and form, whose relatives are known

    @staticmethod
    def of(phrases: Iterable[tuple[Sequence[str], str]]) -> NounKinds:
        """From (words of a phrase, type of what it names)."""
        types: dict[str, Counter[str]] = defaultdict(Counter)
        with_article: Counter[str] = Counter()
        for words, kind in phrases:
            noun = words[-1].lower()
            if noun.replace("-", "").isalpha():
                types[noun][kind] += 1
                with_article[noun] += words[0].lower() in ("a", "an") and "of" not in words
        counts = {noun: found.total() for noun, found in types.items() if found.total() >= MIN_COUNT}
        main = {noun: types[noun].most_common(1)[0][0] for noun in counts}
        forms = {noun: _form(noun, with_article[noun] / counts[noun]) for noun in counts}
        candidates: dict[tuple[str, WordForm], list[str]] = defaultdict(list)
        for noun in sorted(counts, key=lambda noun: (-counts[noun], noun)):
            known = _PEOPLE if main[noun] == "people" else _FAMILIES
            if singular(noun) in known and singular(noun) not in _EVENTS | _UNTOLD:
                candidates[main[noun], forms[noun]].append(noun)
        return NounKinds(main, forms, {key: tuple(nouns[:MAX_CANDIDATES]) for key, nouns in candidates.items()})

    def may_be_the_same(self, one: str, other: str) -> bool:
        """Whether a thing called `one` may be called `other` by somebody else; both as written."""
        first, second = singular(one), singular(other)
        if first == second or _share_an_entry(first, second, _FAMILIES):
            return True
        kinds = self.types.get(one), self.types.get(other)
        known = first in _FAMILIES and second in _FAMILIES
        return not known and kinds[0] is not None and kinds[0] == kinds[1] and kinds[0] != "other"


def _share_an_entry(one: str, other: str, entries: _Entries) -> bool:
    return not entries.get(one, frozenset()).isdisjoint(entries.get(other, frozenset()))


def _form(noun: str, article_share: float) -> WordForm:
    if singular(noun) != noun or noun in ONE_FORM:
        return "many"
    return "mass" if article_share < MASS_BELOW else "one"


def make_foils(
    captions: Sequence[str], kinds: NounKinds, wanted: Sequence[FoilKind] = FOIL_KINDS, seed: int = 0
) -> list[list[Foil]]:
    """For each caption of one photo at most one foil of each kind; the same captions and seed give the same foils."""
    parses = shared_parser().parse(captions)
    photo = _Photo(parses, kinds)
    found = []
    for parse in parses:
        made: dict[str, Foil] = {}
        sentence = " ".join(parse.tokens)
        for kind in wanted:
            tokens = next(
                (tokens for tokens in _shuffled(_MAKERS[kind](parse, photo), f"{seed} {kind} {sentence}")
                 if " ".join(tokens) != sentence and " ".join(tokens) not in made),
                None,
            )  # fmt: skip
            if tokens is not None:
                made[" ".join(tokens)] = Foil(kind, sentence, " ".join(tokens))
        found.append(list(made.values()))
    return found


def _shuffled(ways: Iterable[tuple[str, ...]], key: str) -> list[tuple[str, ...]]:
    """In an order that depends on the key alone, on every machine."""
    return sorted(ways, key=lambda tokens: zlib.crc32(f"{key}\0{' '.join(tokens)}".encode()))


class _Photo:
    """What all captions of a photo say together, against which a foil must be false."""

    def __init__(self, parses: Sequence[Parse], kinds: NounKinds) -> None:
        self.kinds = kinds
        self.nouns = {token for parse in parses for token in parse.tokens if token in kinds.types}
        self.described = {(a.object.name, a.word) for parse in parses for a in parse.attributes}

    def has(self, noun: str, adjective: str) -> bool:
        """Whether some caption says, or comes near to saying, that a thing of this name is like that."""
        return any(_alike(adjective, word) and singular(noun) == singular(name) for name, word in self.described)

    def shows(self, noun: str, instead_of: str) -> bool:
        """Whether some caption mentions what `noun` may mean, other than by a word for what it stands instead of."""
        return any(
            self.kinds.may_be_the_same(noun, other) and not self.kinds.may_be_the_same(instead_of, other)
            for other in self.nouns
        ) or self.kinds.may_be_the_same(noun, instead_of)


def _things(parse: Parse, kinds: NounKinds) -> list[Object]:
    """Things whose name is one noun that stands for something a photo shows."""
    tokens = ("", *parse.tokens, "")  # so that every word has one before and one after it
    found = []
    for thing in parse.objects:
        place, kind = thing.place, kinds.types.get(thing.name)
        parts = any(h == place and parse.labels[p] in ("compound", "flat") for p, h in enumerate(parse.heads))
        follows = parse.tags[place + 1 : place + 2]
        parts = parts or tokens[place].endswith("ing") or follows in (("NOUN",), ("PROPN",))  # "a parking lot"
        named = thing.name not in NAMELESS and thing.name not in COLOUR_WORDS and singular(thing.name) not in _EVENTS
        present = tokens[thing.start] != "without" and tokens[place + 2] != "of"
        if kind not in (None, "bodyparts", "notvisual") and named and present and not parts:
            found.append(thing)
    return found


def _coordinated(parse: Parse, thing: Object) -> bool:
    """Whether "and" or "or" joins it to another thing."""
    beside = {thing.start - 1, thing.end}
    return (
        parse.labels[thing.place] == "conj"
        or any(h == thing.place and parse.labels[p] in ("conj", "cc") for p, h in enumerate(parse.heads))
        or any(0 <= place < len(parse.tokens) and parse.tokens[place] in ("and", "or", "&") for place in beside)
    )


def _symmetric(relation: Relation) -> bool:
    return any(word in _SYMMETRIC for word in relation.predicate) or any(
        relation.predicate[-len(words) :] == words for words in _SYMMETRIC_PHRASES
    )


def _between(parse: Parse, one: Object, other: Object) -> list[Relation]:
    return [r for r in parse.relations if {r.subject, r.object} == {one, other}]


def _exchangeable(parse: Parse, one: Object, other: Object, kinds: NounKinds) -> bool:
    """Whether two things can take each other's part in a sentence, and are not in it together."""
    types = {kinds.types[one.name], kinds.types[other.name]}
    return (
        (len(types) == 1 or not types & {"clothing", "scene"})  # or a sidewalk rides a scooter, and a hat wears a man
        and not (_coordinated(parse, one) or _coordinated(parse, other))
    )


def _exchange_nouns(parse: Parse, photo: _Photo) -> Iterator[tuple[str, ...]]:
    kinds = photo.kinds
    told: dict[Object, set[object]] = defaultdict(set)  # what is said of a thing, but by a symmetric relation
    for attribute in parse.attributes:
        told[attribute.object].add(attribute.word)
    for relation in parse.relations:
        if not _symmetric(relation):
            told[relation.subject].add((relation.predicate, relation.object))
            told[relation.object].add((relation.predicate, relation.subject))
    for one, other in combinations(_things(parse, kinds), 2):
        if (
            kinds.forms[one.name] == kinds.forms[other.name]
            and told[one] != told[other]
            and (kinds.forms[one.name] != "one" or _introduced(one) == _introduced(other))
            and not kinds.may_be_the_same(one.name, other.name)
            and not _colours_people(told, one, other, kinds)
            and _exchangeable(parse, one, other, kinds)
        ):
            yield _with(parse.tokens, {one.place: other.name, other.place: one.name})


def _colours_people(told: Mapping[Object, set[object]], one: Object, other: Object, kinds: NounKinds) -> bool:
    """Whether somebody would take over the colour of something."""
    return any(kinds.types[a.name] == "people" and told[b] & _HUES for a, b in ((one, other), (other, one)))


def _exchange_adjectives(parse: Parse, photo: _Photo) -> Iterator[tuple[str, ...]]:
    said: dict[Object, list[tuple[str, int]]] = defaultdict(list)
    for attribute in parse.attributes:
        said[attribute.object].append((attribute.word, attribute.place))
    for one, other in combinations(said, 2):
        if singular(one.name) == singular(other.name):
            continue  # a blue boat and an orange boat: the same two again
        for (first, here), (second, there) in ((a, b) for a in said[one] for b in said[other]):
            group = next((group for group in _ADJECTIVE_CLASSES if first in group), frozenset())
            alone = all(sum(word in group for word, _ in said[thing]) == 1 for thing in (one, other))
            if group is _HUES and "people" in (photo.kinds.types.get(one.name), photo.kinds.types.get(other.name)):
                continue  # the colour of somebody's shirt, or of a skin
            before = one.start <= here < one.place and other.start <= there < other.place
            if before and singular(parse.tokens[here + 1]) == singular(parse.tokens[there + 1]):
                continue  # the same noun, though a parse may take "boat float" for one thing
            part = before and any(parse.tokens[place + 1].endswith("ed") for place in (here, there))  # "long sleeved"
            new = not (photo.has(one.name, second) or photo.has(other.name, first))
            if second in group and alone and before and not part and new and not _alike(first, second):
                yield _with(parse.tokens, {here: second, there: first})


def _exchange_sides(parse: Parse, photo: _Photo) -> Iterator[tuple[str, ...]]:
    kinds, things = photo.kinds, set(_things(parse, photo.kinds))
    for relation in parse.relations:
        one, other = sorted((relation.subject, relation.object), key=lambda thing: thing.place)
        if not {one, other} <= things or one.end > other.start or _symmetric(relation):
            continue
        movable = all(_has_article(thing, kinds) for thing in (one, other))
        same = kinds.may_be_the_same(one.name, other.name) and one.words[1:] == other.words[1:]
        if (
            movable
            and not same
            and not any(map(_symmetric, _between(parse, one, other)))
            and kinds.forms[one.name] == kinds.forms[other.name]
            and _exchangeable(parse, one, other, kinds)
        ):
            tokens = parse.tokens
            middle = tokens[one.end : other.start]
            yield tokens[: one.start] + other.words + middle + one.words + tokens[other.end :]


def _has_article(thing: Object, kinds: NounKinds) -> bool:
    """Whether a phrase can stand elsewhere: "a man", "men", but neither "man" nor "his dog"."""
    owned = any(word in OWNERS or word == "'s" for word in thing.words)
    return not owned and (kinds.forms[thing.name] != "one" or _introduced(thing))


def _introduced(thing: Object) -> bool:
    """Whether an article or an owner stands before a noun: "a dog", not "dog"."""
    return len(thing.words) > 1 and (thing.words[0] in _ARTICLES or any(word in OWNERS for word in thing.words))


def _replace_noun(parse: Parse, photo: _Photo) -> Iterator[tuple[str, ...]]:
    kinds = photo.kinds
    for thing in _things(parse, kinds):
        if singular(thing.name) not in _FAMILIES:
            continue
        for noun in kinds.candidates.get((kinds.types[thing.name], kinds.forms[thing.name]), ()):
            if not photo.shows(noun, thing.name):
                yield _with(parse.tokens, {thing.place: noun})


_MAKERS: dict[FoilKind, Callable[[Parse, _Photo], Iterator[tuple[str, ...]]]] = {
    "nouns": _exchange_nouns,
    "adjectives": _exchange_adjectives,
    "sides": _exchange_sides,
    "replaced": _replace_noun,
}


def _alike(one: str, other: str) -> bool:
    return one == other or not _ANY_HUE.isdisjoint((one, other)) or _share_an_entry(one, other, _ALIKE)


def _with(tokens: Sequence[str], changed: Mapping[int, str]) -> tuple[str, ...]:
    """The tokens with some replaced, and a/an before these as they now sound."""
    words = [changed.get(place, token) for place, token in enumerate(tokens)]
    for place in changed:
        if place and words[place - 1] in ("a", "an"):
            words[place - 1] = "an" if _begins_with_vowel(words[place]) else "a"
    return tuple(words)


def _begins_with_vowel(word: str) -> bool:
    return word[:1] in "aeio" or (word[:1] == "u" and not word.startswith(("uni", "use", "ute")) and word != "u")
