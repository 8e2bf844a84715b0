"""Questions in words: from what is asked to a text and a program, and back.

A question is a *form* ("relate"), the things it mentions and the relations between them. Each form has several
templates; `parse_question` puts marks for the noun phrases and relations of a text and looks for the template that is
left, which undoes any wording exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from saccade.batch.programs import Program, Step
from saccade.world.catalogue import MATERIALS
from saccade.world.dice import Dice
from saccade.world.grammar import ATTRIBUTES, PASSIVES, PREPOSITIONS, VERBS, article, plural
from saccade.world.questions.metaconcepts import CONCEPTS, PARTS, SAID
from saccade.world.questions.programs import RELATIONS

Words = tuple[str, ...]  # concepts, at most one of each attribute; none: any thing
ANYTHING = ("thing", "object", "toy")


class Mention(NamedTuple):
    """Things of which all `words` are true, and if given, which stand in a relation to the one `anchor`."""

    words: Words
    relation: str = ""
    anchor: Words = ()


class Inquiry(NamedTuple):
    """What is asked: its form, the attribute it is about if there is one, the things and the relations it mentions."""

    form: str
    mentions: tuple[Mention, ...]
    attribute: str = ""
    relations: tuple[str, ...] = ()


# <a1>: "a red cube", <s1>: "red cubes", <n1>: "red cube", <the1>: "the red cube (left of the ball)", <r1>: "left of".
_TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("exist", ""): (
        "is there <a1>?",
        "are there any <s1>?",
        "can you see <a1>?",
        "does the picture show <a1>?",
        "do you see any <s1>?",
    ),
    ("count", ""): (
        "how many <s1> are there?",
        "how many <s1> can you see?",
        "how many <s1> does the picture show?",
        "what is the number of <s1>?",
    ),
    ("count_either", ""): ("how many <s1> or <s2> are there?", "how many things are either <s1> or <s2>?"),
    ("more", ""): (
        "are there more <s1> than <s2>?",
        "do you see more <s1> than <s2>?",
        "is the number of <s1> greater than the number of <s2>?",
    ),
    ("fewer", ""): (
        "are there fewer <s1> than <s2>?",
        "do you see fewer <s1> than <s2>?",
        "is the number of <s1> less than the number of <s2>?",
    ),
    ("as_many", ""): (
        "are there as many <s1> as <s2>?",
        "do you see as many <s1> as <s2>?",
        "is the number of <s1> the same as the number of <s2>?",
    ),
    ("query", "colour"): ("what colour is <the1>?", "what is the colour of <the1>?", "which colour does <the1> have?"),
    ("query", "kind"): ("what is <the1>?", "what kind of toy is <the1>?", "what sort of thing is <the1>?"),
    ("query", "size"): ("what size is <the1>?", "how large is <the1>?", "how big is <the1>?"),
    ("query", "material"): ("what is <the1> made of?", "what material is <the1>?", "which material is <the1> made of?"),
    ("equal", "kind"): ("is <the1> the same kind of toy as <the2>?", "are <the1> and <the2> of the same kind?"),
    ("equal", "material"): (
        "is <the1> made of the same material as <the2>?",
        "are <the1> and <the2> made of the same material?",
    ),
    ("relate", ""): (
        "is there <a1> <r1> <the2>?",
        "are there any <s1> <r1> <the2>?",
        "can you see <a1> that is <r1> <the2>?",
        "is any <n1> <r1> <the2>?",
    ),
    ("relate_both", ""): (
        "is there <a1> that is <r1> <the2> and <r2> <the3>?",
        "is any <n1> both <r1> <the2> and <r2> <the3>?",
    ),
    ("same", "material"): (
        "is there another <n1> made of the same material as <the2>?",
        "is any other <n1> made of the same material as <the2>?",
    ),
    ("same", "kind"): (
        "is there another <n1> of the same kind as <the2>?",
        "is any other <n1> of the same kind as <the2>?",
    ),
    ("and", ""): ("is there <a1> and <a2>?", "are there both <s1> and <s2>?", "can you see <a1> and also <a2>?"),
    ("or", ""): ("is there <a1> or <a2>?", "are there any <s1> or <s2>?", "can you see <a1> or else <a2>?"),
    ("but_no", ""): ("is there <a1> but no <n2>?", "are there any <s1> but no <s2>?"),
}
for _name in ("colour", "size"):
    _TEMPLATES["equal", _name] = (
        f"is <the1> the same {_name} as <the2>?",
        f"do <the1> and <the2> have the same {_name}?",
        f"are <the1> and <the2> of the same {_name}?",
    )
    _TEMPLATES["same", _name] = (
        f"is there another <n1> of the same {_name} as <the2>?",
        f"does another <n1> have the same {_name} as <the2>?",
        f"is any other <n1> of the same {_name} as <the2>?",
    )

RELATION_WORDS: dict[str, tuple[str, ...]] = {
    name: PASSIVES[predicate]
    if passive
    else PREPOSITIONS.get(predicate) or tuple(participle for _, participle in VERBS[predicate])
    for name, (predicate, passive) in RELATIONS.items()
}


def in_order(words: Iterable[str]) -> Words:
    """Size, colour, material, kind: the order in which they are said, and filtered."""
    return tuple(sorted(words, key=lambda word: _ORDER[CONCEPTS[word].attribute]))


_ORDER = {"size": 0, "colour": 1, "material": 2, "kind": 3}


def program_of(asked: Inquiry) -> Program:
    """The steps that answer it."""
    steps: list[Step] = []

    def add(op: str, *inputs: int, argument: str = "") -> int:
        steps.append(Step(op, inputs, argument))
        return len(steps) - 1

    def having(at: int, words: Words) -> int:
        for word in words:
            at = add("filter", at, argument=word)
        return at

    def things(mention: Mention) -> int:
        if not mention.relation:
            return having(add("scene"), mention.words)
        return having(add("relate", having(add("scene"), mention.anchor), argument=mention.relation), mention.words)

    form, mentions, attribute = asked.form, asked.mentions, asked.attribute
    if form in ("exist", "count", "query"):
        add(form, things(mentions[0]), argument=attribute)
    elif form in ("more", "fewer", "as_many", "equal"):
        add(form, things(mentions[0]), things(mentions[1]), argument=attribute)
    elif form == "count_either":
        add("count", add("union", things(mentions[0]), things(mentions[1])))
    elif form == "same":
        add("exist", having(add("same", things(mentions[1]), argument=attribute), mentions[0].words))
    elif form in ("relate", "relate_both"):
        at = [add("relate", things(m), argument=r) for m, r in zip(mentions[1:], asked.relations, strict=True)]
        add("exist", having(add("intersect", *at) if len(at) > 1 else at[0], mentions[0].words))
    else:
        first, second = (add("exist", things(mention)) for mention in mentions)
        add("or" if form == "or" else "and", first, add("not", second) if form == "but_no" else second)
    return tuple(steps)


def say(asked: Inquiry, dice: Dice) -> str:
    """One of the texts that ask it."""

    def fill(slot: re.Match[str]) -> str:
        style, n = slot[1], int(slot[2]) - 1
        if style == "r":
            return dice.pick(RELATION_WORDS[asked.relations[n]])
        mention = asked.mentions[n]
        noun = noun_phrase(mention.words, dice, style == "s")
        if style != "the":
            return f"{article(noun)} {noun}" if style == "a" else noun
        if not mention.relation:
            return f"the {noun}"
        tie = dice.pick(("", "that is ", "which is ")) + dice.pick(RELATION_WORDS[mention.relation])
        return f"the {noun} {tie} the {noun_phrase(mention.anchor, dice)}"

    return _SLOT.sub(fill, dice.pick(_TEMPLATES[asked.form, asked.attribute]))


_SLOT = re.compile(r"<(a|s|n|the|r)(\d)>")


def noun_phrase(words: Words, dice: Dice, several: bool = False) -> str:
    """ "large red cubes made of wood", "thing with legs"; without an article."""
    said = {CONCEPTS[word].attribute: word for word in words}
    kind, material = said.get("kind", ""), said.get("material", "")
    tail = ""
    if material in MATERIALS and (material not in ATTRIBUTES["material"][material] or dice.chance(0.25)):
        tail = f" made of {said.pop('material')}"
    if kind in PARTS:
        tail += f" with {PARTS[kind]}"
    noun = dice.pick(ANYTHING) if not kind or kind in PARTS else kind
    adjectives = [SAID.get(said[name], said[name]) for name in ("size", "colour", "material") if name in said]
    return " ".join([*adjectives, plural(noun) if several else noun]) + tail


@cache
def _readings() -> tuple[re.Pattern[str], re.Pattern[str], dict[str, str], dict[str, str]]:
    """Patterns of a relation and of a noun phrase, and what their words mean."""
    relations = {words: name for name, options in RELATION_WORDS.items() for words in options}
    adjectives, nouns = dict[str, str](), dict.fromkeys([*ANYTHING, *map(plural, ANYTHING)], "")
    for word, concept in CONCEPTS.items():
        if concept.attribute != "kind":
            adjectives[SAID.get(word, word)] = word
        elif concept.level != "part":
            nouns |= {word: word, plural(word): word}
    parts = {said: word for word, said in PARTS.items()}
    noun = (
        rf"(?P<adjectives>(?:{_either(adjectives)} )*)(?P<noun>{_either(nouns)})"
        rf"(?: made of (?P<material>{_either(MATERIALS)}))?(?: with (?P<part>{_either(parts)}))?"
    )
    return re.compile(rf"\b{_either(relations)}\b"), re.compile(rf"\b{noun}\b"), relations, adjectives | nouns | parts


def _either(words: Sequence[str] | dict[str, str]) -> str:
    return "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


def _marked(text: str) -> tuple[str, list[Words], list[str]]:
    """The text with a mark for every relation (~) and noun phrase (#), and what they were."""
    relation, noun, relation_of, concept_of = _readings()
    relations: list[str] = []
    phrases: list[Words] = []

    def note_relation(match: re.Match[str]) -> str:
        relations.append(relation_of[match[0]])
        return "~"

    def note_phrase(match: re.Match[str]) -> str:
        said = [*match["adjectives"].split(), match["noun"], match["material"], match["part"]]
        phrases.append(in_order(concept_of.get(word, word) for word in said if word and concept_of.get(word, word)))
        return "#"

    return noun.sub(note_phrase, relation.sub(note_relation, text)).replace(" an #", " a #"), phrases, relations


@cache
def _skeletons() -> dict[str, tuple[str, str, tuple[int, ...]]]:
    """Every template as `_marked` leaves it → form, attribute, and for each noun phrase the mention it is.

    A negative number is an anchor of that mention; 0 is a word of the template itself ("what kind of toy").
    """
    found = {}
    for (form, attribute), templates in _TEMPLATES.items():
        for template in templates:
            slots = [slot for slot in _SLOT.finditer(template) if slot[1] == "the"]
            for ties in product(("", " ~ the &", " that is ~ the &", " which is ~ the &"), repeat=len(slots)):
                filled = template
                for slot, tie in zip(slots, ties, strict=True):
                    filled = filled.replace(slot[0], f"the ${slot[2]}{tie.replace('&', '%' + slot[2])}")
                filled = _SLOT.sub(r"$\2", re.sub(r"<r\d>", "~", filled.replace("<a", "a <a")))
                fixed = _readings()[1].sub("#", filled)
                marks = re.findall(r"#|[$%]\d", fixed)
                owners = tuple(0 if m == "#" else int(m[1]) if m[0] == "$" else -int(m[1]) for m in marks)
                found[re.sub(r"[$%]\d", "#", fixed)] = (form, attribute, owners)
    return found


def read_question(text: str) -> Inquiry | None:
    """What a text asks; None if it is not worded as the world's questions are."""
    skeleton, phrases, relations = _marked(" ".join(text.lower().removesuffix("?").split()) + "?")
    known = _skeletons().get(skeleton)
    if known is None or "#" in text or "~" in text:
        return None
    form, attribute, owners = known
    mentions: dict[int, Mention] = {}
    left = iter(relations)
    free: list[str] = []
    for owner, words in zip(owners, phrases, strict=True):
        if owner > 0:
            if form.startswith("relate") and owner > 1:
                free.append(next(left))
            mentions[owner] = Mention(words)
        elif owner < 0:
            mentions[-owner] = mentions[-owner]._replace(relation=next(left), anchor=words)
    ordered = tuple(mentions[n] for n in sorted(mentions))
    if not all(_sound(words) for m in ordered for words in (m.words, m.anchor)):
        return None
    return Inquiry(form, ordered, attribute, tuple(free))


def _sound(words: Words) -> bool:
    """Whether no attribute is said twice, as in "a red blue cube"."""
    return len({CONCEPTS[word].attribute for word in words}) == len(words)


def parse_question(text: str) -> Program | None:
    """The program of a question that is worded as the world's are; None for any other text."""
    asked = read_question(text)
    return None if asked is None else program_of(asked)
