"""Questions and answers read off the captions of a photo by rules: a small answerer for photos learns from them.

Five people described each photo. What two of them say and none contradicts is taken for true; what none of them names,
though whoever sees it would hardly leave it out, is taken to be absent. The kinds:

    exist     is there a dog?                    yes: two captions name it; no: none names it or anything like it
    count     how many dogs are there?           "two dogs", "a dog and a cat": all captions that tell agree
    colour    what colour is the ball?           one thing of that name, one colour in the captions that tell
    doing     what is the boy doing?             one boy (or several), one verb in most captions that tell
    wearing   what is the man wearing?           one man, what two captions say he wears
    where     where is the dog?                  one kind of place in all captions, named twice
    animal    what animal is there?              one kind in all captions, named twice
    who       who is there?                      one man and nobody else; several people; or nobody in any caption
    object    what is the man riding?            one man, one thing in most captions that tell (holding, playing)
    sport     what sport is it?                  one in all captions, named twice, and no animal
    is        is the dog running?                yes: as doing, colour, where have it; no: they have another, and no
                                                 caption has the word

Of all texts every other is then asked in other words (`phrased`), since people do.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from saccade.core.config import load_table
from saccade.language.caption_words import (
    COLOUR_WORDS,
    SHADES,
    SPELLINGS,
    base_form,
    singular,
    word_pairs,
    word_table,
)
from saccade.language.parsing.parser import Parse
from saccade.language.parsing.scene_graph import Object

ASKED = load_table(Path(__file__).with_suffix(".yaml"))
KIN = {name: word_table(words) | {name} for name, words in ASKED["present"].items()}
COUNTED: dict[str, str] = ASKED["counted"]
COLOURED, DOERS, WORN = (word_table(ASKED[kind]) for kind in ("coloured", "doers", "worn"))
DOING, PLACES = word_pairs(ASKED["doing"]), word_pairs(ASKED["places"])
ANIMALS, SPORTS = word_pairs(ASKED["animals"]), word_pairs(ASKED["sports"])
OBJECTS = {verb: word_pairs(words) for verb, words in ASKED["objects"].items()}
AS_WELL, SEVERAL = word_pairs(ASKED["as_well"]), word_table(ASKED["several"])
PHRASINGS = [(re.compile(re.escape(text).replace(r"\*", "(.+)")), ways) for text, ways in ASKED["phrasings"].items()]
PEOPLE = ("boy", "girl", "man", "woman")
NUMBERS = {"a": 1, "an": 1, "one": 1, "another": 1, "two": 2, "three": 3, "four": 4}
COMMON_COLOURS = frozenset(("red", "blue", "green", "yellow", "black", "white", "brown", "orange", "pink"))
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

    def several(self, name: str) -> bool:
        """Whether two captions speak of several such things, and none of one."""
        numbers = [
            [_number(parse, thing) != 1 for noun, thing in things if noun == name]
            for parse, things in zip(self.parses, self.things, strict=True)
        ]
        told = [all(each) for each in numbers if each]
        return len(told) >= AGREED and all(told)

    def one_kind(self, kinds: Mapping[str, str]) -> str:
        """The only kind of which any caption has a word, if AGREED have one; else nothing."""
        found = Counter(kind for words in self.words for kind in {kinds[w] for w in words & kinds.keys()})
        return next(iter(found)) if len(found) == 1 and max(found.values()) >= AGREED else ""


def _number(parse: Parse, thing: Object) -> int:
    if thing.name in ("people", "men", "women", "children") or singular(thing.name) != thing.name:
        return next((NUMBERS[w] for w in thing.words if NUMBERS.get(w, 0) > 1), 0)
    return 1 if any(w in NUMBERS or w in ("the", "his", "her", "its") for w in thing.words[:1]) else 0


def questions_of(parses: Sequence[Parse]) -> tuple[CaptionQuestion, ...]:
    """All that the captions of one photo tell; "no" among it as often as it is true."""
    facts = _CaptionFacts(parses)
    rules = (_exist, _count, _colour, _doing, _wearing, _where, _animal, _who, _object, _sport, _is)
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
            yield f"how many {_plural(name)} are there?", str(numbers[0])


def _plural(name: str) -> str:
    return {"man": "men", "woman": "women", "child": "children", "person": "people"}.get(name, name + "s")


def _colour(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name in sorted(COLOURED):
        if colour := _colour_of(facts, name):
            yield f"what colour is the {name}?", colour


def _colour_of(facts: _CaptionFacts, name: str) -> str:
    """Of the one thing of a name, what all captions that tell say; nothing if they do not."""
    said: list[frozenset[str]] = []
    for parse, things in zip(facts.parses, facts.things, strict=True):
        for thing in (thing for noun, thing in things if noun == name):
            words = [a.word for a in parse.attributes if a.object == thing]
            said.append(frozenset(SPELLINGS.get(w, w) for w in words if SPELLINGS.get(w, w) in COLOUR_WORDS))
    colours = {each - SHADES for each in said if each - SHADES}
    colour = next(iter(next(iter(colours)))) if len(colours) == 1 and len(next(iter(colours))) == 1 else ""
    return colour if colour and colour not in MIXED and facts.alone(name) else ""


def _doing(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for name in sorted(DOERS):
        subject = _subject(facts, name)
        if subject and (best := _deed(facts, name)):
            yield f"what {subject} doing?", best


def _subject(facts: _CaptionFacts, name: str) -> str:
    """ "is the dog" or "are the dogs", where captions speak of one or of several; else nothing."""
    if facts.alone(name):
        return f"is the {name}"
    return f"are the {_plural(name)}" if facts.several(name) else ""


def _deed(facts: _CaptionFacts, name: str) -> str:
    """What most captions that tell say a thing does."""
    verbs: Counter[str] = Counter()
    for parse, things in zip(facts.parses, facts.things, strict=True):
        places = [thing.place for noun, thing in things if noun == name]
        verbs.update({DOING[v] for place in places for v in _verbs(parse, place) if v in DOING})
    return _clear(verbs)


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
    for name in PEOPLE:
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
    place = _place(facts)
    for name in sorted(DOERS) if place else ():
        if subject := _subject(facts, name):
            yield f"where {subject}?", place


def _place(facts: _CaptionFacts) -> str:
    """The one kind of place that all captions name, if AGREED do."""
    places: Counter[str] = Counter()
    for parse, things in zip(facts.parses, facts.things, strict=True):
        cases = zip(parse.tokens, parse.heads, parse.labels, strict=True)
        with_case = {head for token, head, label in cases if label == "case" and token in BESIDE}
        places.update({PLACES[n] for n, thing in things if n in PLACES and thing.place in with_case})
    return next(iter(places)) if len(places) == 1 and max(places.values()) >= AGREED else ""


def _animal(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    if kind := facts.one_kind(ANIMALS):
        yield "what animal is there?", kind


def _sport(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    with_animal = any(words & ANIMALS.keys() for words in facts.words)  # a dog with a tennis ball does no sport
    if (kind := facts.one_kind(SPORTS)) and not with_animal:
        yield "what sport is it?", kind


def _who(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    anybody = SEVERAL.union(*(KIN[name] for name in PEOPLE))
    crowds = sum(bool(words & SEVERAL) for words in facts.words)
    if crowds > AGREED:
        yield "who is there?", "several people"
    elif not any(words & anybody for words in facts.words):
        yield "who is there?", "nobody"
    elif not crowds:
        named = [name for name in PEOPLE if any(name in words for words in facts.words)]
        if len(named) == 1 and facts.alone(named[0]):
            yield "who is there?", named[0]


def _object(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    for verb, things in OBJECTS.items():
        for name in sorted(DOERS):
            if not (subject := _subject(facts, name)):
                continue
            found: Counter[str] = Counter()
            for parse in facts.parses:
                found.update(
                    {
                        things[plain_noun(r.object.name)]
                        for r in parse.relations
                        if plain_noun(r.subject.name) in {name, *KIN.get(name, ())}
                        and _base(r.predicate[0]) == verb
                        and plain_noun(r.object.name) in things
                    }
                )
            if best := _clear(found):
                yield f"what {subject} {ASKED['asked_of'][verb]}?", best


def _base(verb: str) -> str:
    base = base_form(verb)
    return AS_WELL.get(base, base)


def _is(facts: _CaptionFacts) -> Iterator[tuple[str, str]]:
    """Of what the other rules find, what is so and what is not: of one thing there is one deed, colour and place."""
    place, said = _place(facts), frozenset[str]().union(*facts.words)

    def absent(kinds: Mapping[str, str]) -> set[str]:
        """Kinds of which no caption has a word."""
        return set(kinds.values()) - {kinds[word] for word in said & kinds.keys()}

    for name in sorted(DOERS):
        subject, deed = _subject(facts, name), _deed(facts, name)
        if subject and deed:
            yield from _yes_and_no(subject, [deed], sorted(absent(DOING)))
        if subject and place in ASKED["at"]:
            others = [ASKED["at"][other] for other in sorted(absent(PLACES)) if other in ASKED["at"]]
            yield from _yes_and_no(subject, [ASKED["at"][place]], others)
    for name in sorted(COLOURED):
        if colour := _colour_of(facts, name):
            true = [colour] if colour in COMMON_COLOURS else []
            yield from _yes_and_no(f"is the {name}", true, sorted(COMMON_COLOURS - said))


def _yes_and_no(subject: str, true: Sequence[str], false: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from ((f"{subject} {one}?", "yes") for one in true)
    yield from ((f"{subject} {one}?", "no") for one in false)


def phrased(photo: str, question: CaptionQuestion) -> CaptionQuestion:
    """Every other question in other words, if there are any for it; which, the checksum of photo and text decides."""
    for text, ways in PHRASINGS:
        if (found := text.fullmatch(question.text)) is not None:
            dice = zlib.crc32(f"{photo} {question.text} asked".encode())
            if dice % 2:
                return question._replace(text=ways[dice // 2 % len(ways)].replace("*", *found.groups() or ("",)))
            break
    return question


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
