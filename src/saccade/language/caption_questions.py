"""Questions and answers read off the captions of a photo by rules: a small answerer for photos learns from them.

Five people described each photo. What two of them say and none contradicts is taken for true; what none of them names,
though whoever sees it would hardly leave it out, is taken to be absent. The kinds:

    exist     is there a dog?                    yes: two captions name it; no: none names it or anything like it
    count     how many dogs are there?           "two dogs", "a dog and a cat": all captions that tell agree
    colour    what colour is the ball?           one thing of that name, one colour in the captions that tell
    doing     what is the boy doing?             one boy, one verb in most captions that tell
    wearing   what is the man wearing?           one man, what two captions say he wears
    where     where is the dog?                  one kind of place in all captions, named twice
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from saccade.core.config import load_table
from saccade.language.caption_words import COLOUR_WORDS, SHADES, SPELLINGS, singular, word_pairs, word_table
from saccade.language.parsing.parser import Parse
from saccade.language.parsing.scene_graph import Object

ASKED = load_table(Path(__file__).with_suffix(".yaml"))
KIN = {name: word_table(words) | {name} for name, words in ASKED["present"].items()}
COUNTED: dict[str, str] = ASKED["counted"]
COLOURED, DOERS, WORN = (word_table(ASKED[kind]) for kind in ("coloured", "doers", "worn"))
DOING, PLACES = word_pairs(ASKED["doing"]), word_pairs(ASKED["places"])
NUMBERS = {"a": 1, "an": 1, "one": 1, "another": 1, "two": 2, "three": 3, "four": 4}
MIXED = frozenset(("colorful", "multicolored", "rainbow", "fluorescent"))
BESIDE = frozenset(("in", "on", "at", "through", "into", "inside", "across", "along", "down", "under", "onto"))
AGREED = 2  # captions


class CaptionQuestion(NamedTuple):
    kind: str
    text: str
    answer: str


def plain_noun(word: str) -> str:
    return word if word in WORN else singular(word)


class _CaptionFacts:
    """What the captions of one photo say, caption by caption."""

    def __init__(self, parses: Sequence[Parse]) -> None:
        self.parses = parses
        self.words = [frozenset(w for token in p.tokens for w in (token, singular(token))) for p in parses]
        self.things = [[(plain_noun(thing.name), thing) for thing in p.objects] for p in parses]

    def naming(self, name: str) -> int:
        return sum(any(own == name for own, _ in things) for things in self.things)

    def numbers(self, name: str) -> list[int]:
        """How many there are of a name, in each caption that names it; 0 where it does not tell."""
        found = []
        for parse, things in zip(self.parses, self.things, strict=True):
            own = [thing for noun, thing in things if noun == name]
            if own:
                each = [_number(parse, thing) for thing in own]
                found.append(sum(each) if all(each) else 0)
        return found

    def alone(self, name: str) -> bool:
        """Whether two captions speak of one such thing, and none of several."""
        numbers = self.numbers(name)
        return numbers.count(1) >= AGREED and set(numbers) <= {1}


def _number(parse: Parse, thing: Object) -> int:
    if thing.name in ("people", "men", "women", "children") or singular(thing.name) != thing.name:
        return next((NUMBERS[w] for w in thing.words if NUMBERS.get(w, 0) > 1), 0)
    return 1 if any(w in NUMBERS or w in ("the", "his", "her", "its") for w in thing.words[:1]) else 0


def questions_of(parses: Sequence[Parse]) -> tuple[CaptionQuestion, ...]:
    """All that the captions of one photo tell; "no" among it as often as it is true."""
    facts = _CaptionFacts(parses)
    rules = (_exist, _count, _colour, _doing, _wearing, _where)
    return tuple(CaptionQuestion(rule.__name__[1:], *found) for rule in rules for found in rule(facts))


def _exist(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name, kin in KIN.items():
        text = f"is there {'' if name == 'snow' else 'a '}{name}?"
        if facts.naming(name) >= AGREED:
            yield text, "yes"
        elif not any(words & kin for words in facts.words):
            yield text, "no"


def _count(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name in COUNTED:
        numbers = facts.numbers(name)
        if len(numbers) >= AGREED and len(set(numbers)) == 1 and numbers[0]:
            yield f"how many {_PLURALS.get(name, name + 's')} are there?", str(numbers[0])


_PLURALS = {"man": "men", "woman": "women", "child": "children", "person": "people"}


def _colour(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name in sorted(COLOURED):
        said: list[frozenset[str]] = []
        for parse, things in zip(facts.parses, facts.things, strict=True):
            for thing in (thing for noun, thing in things if noun == name):
                words = [a.word for a in parse.attributes if a.object == thing]
                said.append(frozenset(SPELLINGS.get(w, w) for w in words if SPELLINGS.get(w, w) in COLOUR_WORDS))
        colours = {each - SHADES for each in said if each - SHADES}
        colour = next(iter(next(iter(colours)))) if len(colours) == 1 and len(next(iter(colours))) == 1 else ""
        if colour and colour not in MIXED and facts.alone(name):
            yield f"what colour is the {name}?", colour


def _doing(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name in sorted(DOERS):
        if not facts.alone(name):
            continue
        verbs: Counter[str] = Counter()
        for parse, things in zip(facts.parses, facts.things, strict=True):
            places = [thing.place for noun, thing in things if noun == name]
            verbs.update({DOING[v] for place in places for v in _verbs(parse, place) if v in DOING})
        best = _clear(verbs)
        if best:
            yield f"what is the {name} doing?", best


def _verbs(parse: Parse, place: int) -> Iterator[str]:
    """What the thing at a place does: the verb whose subject it is, or that follows it as "a boy running"."""
    head = parse.heads[place]
    if parse.labels[place] == "nsubj" and head >= 0 and parse.tags[head] == "VERB":
        yield parse.tokens[head]
    for child, above in enumerate(parse.heads):
        if above == place and parse.labels[child].startswith("acl") and parse.tokens[child].endswith("ing"):
            yield parse.tokens[child]


def _clear(said: Counter[str]) -> str:
    """What AGREED captions say, and at most half as many anything else; "" if there is no such thing."""
    (best, count), (_, next_count) = [*said.most_common(2), ("", 0), ("", 0)][:2]
    return best if count >= AGREED and 2 * next_count <= count else ""


def _wearing(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name in ("boy", "girl", "man", "woman"):
        if not facts.alone(name):
            continue
        worn: Counter[str] = Counter()
        for parse in facts.parses:
            worn.update(
                {
                    "swimsuit" if "bathing" in r.object.words else plain_noun(r.object.name)
                    for r in parse.relations
                    if plain_noun(r.subject.name) == name
                    and r.predicate in (("wearing",), ("in",), ("wears",), ("with",))
                }
                & WORN
            )
        best = _clear(worn)
        if best:
            yield f"what is the {name} wearing?", best


def _where(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    places: Counter[str] = Counter()
    for parse, things in zip(facts.parses, facts.things, strict=True):
        cases = zip(parse.tokens, parse.heads, parse.labels, strict=True)
        with_case = {head for token, head, label in cases if label == "case" and token in BESIDE}
        places.update({PLACES[n] for n, thing in things if n in PLACES and thing.place in with_case})
    if len(places) == 1 and max(places.values()) >= AGREED:
        for name in sorted(DOERS):
            if facts.alone(name):
                yield f"where is the {name}?", next(iter(places))


def balanced(asked: Iterable[tuple[str, CaptionQuestion]], share: float = 1.0) -> Iterator[tuple[str, CaptionQuestion]]:
    """Of (photo, question) those that stay if the most frequent answer to a text is cut to `share` times the second
    most frequent: "is there …" is as often yes as no. Which of them, the checksums of photo and text decide."""
    rows = list(asked)
    counts: dict[str, Counter[str]] = {}
    for _, question in rows:
        counts.setdefault(question.text, Counter())[question.answer] += 1
    most = {text: _limit(found, share) for text, found in counts.items()}
    kept: dict[tuple[str, str], int] = {}
    chosen = set()
    for photo, question in sorted(rows, key=lambda row: zlib.crc32(f"{row[0]} {row[1].text}".encode())):
        key = (question.text, question.answer)
        if kept.get(key, 0) < most[question.text]:
            kept[key] = kept.get(key, 0) + 1
            chosen.add((photo, question))
    yield from (row for row in rows if row in chosen)


def _limit(found: Counter[str], share: float) -> int:
    """How many of an answer may stay: as many as the second has; none where there is one answer only."""
    ranked = [count for _, count in found.most_common(2)]
    return int(share * ranked[1]) if len(ranked) > 1 else 0
