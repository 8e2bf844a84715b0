"""Questions about scenes, with programs and true answers, of which neither words nor picture alone give an answer away.

*Yes or no.* A question is asked of a scene only if its answer differs in another scene, its *foil*, that was drawn in
the same way. Scene and foil play the same part in choosing the question, so for every text "yes here and no there" is
as likely as "no here and yes there". Where a question speaks of "the cube", both have exactly one. A foil is of the
same *make*: it has as many things, and as many pairs that share what is asked about, or as many acts. Otherwise a
crowded picture would mean "yes" before anything is asked.

*Other answers.* A question whose answer is a number or a value is kept with a probability inverse to how often that
answer is the truth for its words, as counted over the foils: all answers are then as frequent.

The number of attempts is fixed, never "until there are enough": a scene that offers little is asked little.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, combinations
from math import comb
from typing import NamedTuple

import numpy as np

from saccade.batch.programs import Program
from saccade.world.catalogue import ACTS
from saccade.world.dice import Dice
from saccade.world.grammar import ATTRIBUTES
from saccade.world.questions.metaconcepts import CONCEPTS, WORDS
from saccade.world.questions.programs import RELATIONS, Facts, answer
from saccade.world.questions.wording import Inquiry, Mention, Words, in_order, program_of, say
from saccade.world.sample import Wish, sample_scene
from saccade.world.scene import Scene, Thing

FOILS = 6000  # scenes
SUPPORT = 80  # foils that must have what a text speaks of, so that the truth about it is known well enough
CHOICE = 6  # of them of the scene's make, lest the foils that there happen to be give the answer away
MOST_COUNTED = 3  # "how many": 0 to 3, each as often
SHOWN = 0.8  # of an attribute's values that must be possible for what the words say
SLOTS = 8  # the most things in a scene
BESIDE = ("left of", "right of", "in front of", "behind", "next to")
KINDS = (
    *("exist", "count", "compare_number", "compare_attribute"),
    *("query_colour", "query_kind", "query_size", "query_material"),
    *("relate", "same_attribute", "logical"),
)


class Question(NamedTuple):
    """A text, what it asks as a program, and the true answer."""

    kind: str  # one of KINDS
    text: str
    program: Program
    answer: str


def _prior() -> Iterator[tuple[str, float]]:
    """Concepts, one word for each meaning, and how often a question that speaks of their attribute uses which."""
    for attribute in ATTRIBUTES:
        for level, share in (("basic", 0.7), ("family", 0.2), ("part", 0.1)):
            own = [c.word for c in CONCEPTS.values() if (c.attribute, c.level) == (attribute, level)]
            own = [word for word in own if level != "basic" or word in WORDS]
            yield from ((word, share / len(own)) for word in own)


PRIOR = dict(_prior())
_KEYS = tuple(PRIOR)
ATTRIBUTE_OF = {key: CONCEPTS[key].attribute for key in _KEYS}


@cache
def true_of(kind: str, colour: str, size: str, material: str) -> Words:
    """All concepts that are true of a thing."""
    return tuple(k for k in _KEYS if CONCEPTS[k].values & {kind, colour, size, material})


def makes(facts: Facts) -> dict[str, tuple[int, ...]]:
    """What a foil must share with a scene: the number of things, for an attribute also of the pairs alike in it, for
    "acts" also of what is done.
    """
    count = len(facts.things)
    alike = {name: Counter(getattr(thing, name) for thing in facts.things) for name in ATTRIBUTES}
    acts = sum(held.bit_count() for (relation, _), held in facts.related.items() if relation in ACTS)
    pairs = {name: sum(comb(n, 2) for n in counts.values()) for name, counts in alike.items()}
    return {"": (count,), "acts": (count, acts)} | {name: (count, n) for name, n in pairs.items()}


class Foils:
    """Scenes drawn as a wish has it, and how often what is true in them."""

    def __init__(self, wish: Wish) -> None:
        scenes = [sample_scene(Dice("foils", n), f"foil-{n}", wish) for n in range(FOILS)]
        self.facts = [Facts(scene) for scene in scenes]
        of_make = defaultdict[tuple[str, tuple[int, ...]], list[int]](list)
        for n, facts in enumerate(self.facts):
            for make in makes(facts).items():
                of_make[make].append(n)
        self.of_make = {make: np.array(places) for make, places in of_make.items()}
        of_value = {value: np.array([f.of_value[value] for f in self.facts], np.uint8) for value in WORDS}
        self.sets = {k: np.sum([of_value[v] for v in CONCEPTS[k].values], axis=0, dtype=np.uint8) for k in _KEYS}
        self._sizes: dict[Words, np.ndarray] = {}
        self._unique: dict[Words, np.ndarray] = {}
        things = [thing for scene in scenes for thing in scene.things]
        # In a scene of few things more of them can be named: each counts inversely (as whole numbers, summed exactly).
        self._weight = np.array([840 // len(scene.things) for scene in scenes for _ in scene.things])
        columns = {name: np.array([getattr(thing, name) for thing in things]) for name in ATTRIBUTES}
        self._held = {k: np.isin(columns[ATTRIBUTE_OF[k]], sorted(CONCEPTS[k].values)) for k in _KEYS}
        self._chances: dict[tuple[str, Words], dict[str, float]] = {}
        countable = self._countable()
        self.countable = [[row for row in countable if len(row[0]) == groups] for groups in (1, 2)]

    def sizes(self, words: Words) -> np.ndarray:
        """How many things the words are true of, in each foil."""
        if words not in self._sizes:
            found = self.sets[words[0]]
            for word in words[1:]:
                found = found & self.sets[word]
            self._sizes[words] = _BITS[found]
        return self._sizes[words]

    def with_one(self, words: Words) -> np.ndarray:
        """Whether each foil has exactly one such thing."""
        if words not in self._unique:
            self._unique[words] = self.sizes(words) == 1
        return self._unique[words]

    def supports(self, words: Words) -> bool:
        return int(np.count_nonzero(self.sizes(words))) >= SUPPORT

    def pick(self, dice: Dice, make: tuple[str, tuple[int, ...]], *unique: Words) -> Facts | None:
        """A foil of this make in which each of these is the only one of its kind; None if such are too few."""
        places = self.of_make.get(make, _NOWHERE)
        for words in unique:
            places = places[self.with_one(words)[places]]
        return self.facts[int(places[dice.below(len(places))])] if len(places) >= CHOICE else None

    def chances(self, attribute: str, words: Words) -> dict[str, float]:
        """Value → how often to keep a question for it, where a thing of these words is asked for the attribute.

        The inverse of naive Bayes: Π P(word | value) · P(value). Empty if the words leave too few values possible.
        """
        if (attribute, words) not in self._chances:
            share: dict[str, float] = {}
            for value in ATTRIBUTES[attribute]:
                own = self._held[value]
                total = int(self._weight[own].sum())
                share[value] = float(total)
                for word in words:
                    share[value] *= int(self._weight[own & self._held[word]].sum()) / max(total, 1)
            possible = {value: each for value, each in share.items() if each > 0}
            least = min(possible.values(), default=0.0)
            kept = {value: least / each for value, each in possible.items()}
            self._chances[attribute, words] = kept if len(possible) >= SHOWN * len(share) else {}
        return self._chances[attribute, words]

    def _countable(self) -> list[tuple[tuple[Words, ...], tuple[float, ...]]]:
        """What can be counted (either of two things, where two are given), and how often to keep each number."""
        found = []
        singles: list[tuple[Words, ...]] = [((key,),) for key in _KEYS]
        both: list[tuple[Words, ...]] = [
            (in_order(pair),) for pair in combinations(_KEYS, 2) if ATTRIBUTE_OF[pair[0]] != ATTRIBUTE_OF[pair[1]]
        ]
        either: list[tuple[Words, ...]] = [
            ((a,), (b,)) for a, b in combinations(_KEYS, 2) if CONCEPTS[a].level == "basic" and not _nested(a, b)
        ]
        for groups in singles + both + either:
            sets = [self.sets[g[0]] if len(g) == 1 else self.sets[g[0]] & self.sets[g[1]] for g in groups]
            numbers = np.bincount(_BITS[sets[0] if len(sets) == 1 else sets[0] | sets[1]], minlength=SLOTS + 1)
            least = int(min(numbers[: MOST_COUNTED + 1]))
            if least >= SUPPORT:
                found.append((groups, tuple(least / int(n) for n in numbers[: MOST_COUNTED + 1])))
        return found


_NOWHERE = np.zeros(0, np.int64)
_BITS = np.array([n.bit_count() for n in range(256)], np.uint8)


def _nested(a: str, b: str) -> bool:
    """Whether whatever is one is the other."""
    one, other = CONCEPTS[a].values, CONCEPTS[b].values
    return one <= other or other <= one


@cache
def foils(wish: Wish) -> Foils:
    """Made once for each way of drawing scenes: about three seconds."""
    return Foils(wish)


def ask(scene: Scene, wish: Wish | None = None) -> tuple[Question, ...]:
    """About 24 questions on a scene, the same for the same scene. `wish` says how such scenes are drawn.

    All things of a scene count: they are drawn so that each can be seen.
    """
    return tuple(_Asker(scene, foils(wish or Wish())).questions())


class _Asker:
    def __init__(self, scene: Scene, pool: Foils) -> None:
        self.facts, self.foils = Facts(scene), pool
        self.makes = makes(self.facts)
        self.dice = Dice("questions", scene.id, scene.seed)
        self.ones: dict[str, tuple[list[Words], list[float]]] = {}

    def questions(self) -> Iterator[Question]:
        texts: set[str] = set()
        for kind, asked in self._inquiries():
            spoken = self._spoken(asked)
            text = say(spoken, self.dice)
            if text not in texts:
                texts.add(text)
                program = program_of(spoken)
                yield Question(kind, text, program, answer(program, self.facts))

    def _inquiries(self) -> Iterator[tuple[str, Inquiry]]:
        for kind, draw, attempts in (
            ("exist", self._exist, 7),
            ("count", self._count, 9),
            ("compare_number", self._compare, 6),
            ("logical", self._logical, 6),
        ):
            yield from ((kind, asked) for _ in range(attempts) if (asked := draw()) is not None)
        for name in ATTRIBUTES:
            yield from self._queries(name)
            yield from self._equal(name)
            yield from self._same(name)
        yield from self._relate()
        yield from self._relate_both()

    def _foil(self, make: str, *unique: Words) -> Facts | None:
        return self.foils.pick(self.dice, (make, self.makes[make]), *unique)

    # Without "the"

    def _differs(self, asked: Inquiry, foil: Facts) -> bool:
        program = program_of(asked)
        return self.facts.run(program)[-1] != foil.run(program)[-1]

    def _exist(self) -> Inquiry | None:
        """What a thing of the scene or of the foil is like."""
        foil = self._foil("")
        if foil is None:
            return None
        things = (self.facts if self.dice.chance(0.5) else foil).things
        n = self.dice.below(SLOTS)
        if n >= len(things):
            return None
        words = self._like(things[n], self.dice.weighted((1, 2, 3), (3, 4, 2)))
        asked = Inquiry("exist", (Mention(words),))
        return asked if self.foils.supports(words) and self._differs(asked, foil) else None

    def _like(self, thing: Thing, count: int) -> Words:
        """Some concepts that are true of a thing, of different attributes."""
        true = true_of(*thing.identity)
        names = self.dice.shuffled(tuple(ATTRIBUTES))[:count]
        return in_order(
            self.dice.weighted(own, [PRIOR[key] for key in own])
            for name in names
            for own in [[key for key in true if ATTRIBUTE_OF[key] == name]]
        )

    def _count(self) -> Inquiry | None:
        groups, kept = self.dice.pick(self.foils.countable[0 if self.dice.chance(0.6) else 1])
        found = 0
        for words in groups:
            found |= self.facts.having(words)
        number = found.bit_count()
        if number > MOST_COUNTED or not self.dice.chance(kept[number]):
            return None
        return Inquiry("count" if len(groups) == 1 else "count_either", tuple(Mention(words) for words in groups))

    def _two(self, foil: Facts) -> tuple[Mention, Mention] | None:
        """Two concepts that something in the scene or the foil has, neither implied by the other."""
        present = [key for key in _KEYS if self.facts.having((key,)) or foil.having((key,))]
        if not present:
            return None
        weights = [PRIOR[key] for key in present]
        a, b = self.dice.weighted(present, weights), self.dice.weighted(present, weights)
        return None if _nested(a, b) else (Mention((a,)), Mention((b,)))

    def _compare(self) -> Inquiry | None:
        foil = self._foil("")
        pair = self._two(foil) if foil else None
        asked = Inquiry(self.dice.pick(("more", "fewer", "as_many")), pair) if pair else None
        return asked if asked and foil and self._differs(asked, foil) else None

    def _logical(self) -> Inquiry | None:
        foil = self._foil("")
        pair = self._two(foil) if foil else None
        asked = Inquiry(self.dice.pick(("and", "or", "but_no")), pair) if pair else None
        return asked if asked and foil and self._differs(asked, foil) else None

    # With "the"

    def _unique(self, without: str) -> tuple[list[Words], list[float]]:
        """Words of one or two concepts that are true of one thing only, and how often (summed) to use them."""
        sets = {key: held for key in _KEYS if ATTRIBUTE_OF[key] != without and (held := self.facts.having((key,)))}
        ones: list[tuple[Words, float]] = []
        ones += (((key,), 0.5 * PRIOR[key]) for key, held in sets.items() if held.bit_count() == 1)
        for (a, first), (b, second) in combinations(sets.items(), 2):
            if (first & second).bit_count() == 1 and ATTRIBUTE_OF[a] != ATTRIBUTE_OF[b]:
                ones.append((in_order((a, b)), PRIOR[a] * PRIOR[b]))
        return [words for words, _ in ones], list(accumulate(often for _, often in ones))

    def _the(self, without: str, rate: float) -> Iterator[Words]:
        """Words for one thing that do not speak of an attribute: as many as this scene has such words."""
        if without not in self.ones:
            self.ones[without] = self._unique(without)
        words, sums = self.ones[without]
        if words:
            for _ in range(int(rate * sums[-1] + self.dice.draw())):
                yield words[min(bisect(sums, self.dice.draw() * sums[-1]), len(words) - 1)]

    def _queries(self, attribute: str) -> Iterator[tuple[str, Inquiry]]:
        for words in self._the(attribute, _QUERY_RATES[attribute]):
            mention = Mention(words)
            if self.dice.chance(0.4):  # "the toy left of the cube"
                mention = Mention(self._some(attribute, 0.5), self.dice.pick(BESIDE), words)
            elif self.dice.chance(0.3):
                mention = Mention(self._more(words, attribute))
            asked = Inquiry("query", (mention,), attribute)
            found = self._found(mention)
            if found.bit_count() != 1:
                continue
            value = getattr(self.facts.things[found.bit_length() - 1], attribute)
            if self.dice.chance(self.foils.chances(attribute, mention.words).get(value, 0.0)):
                yield f"query_{attribute}", asked

    def _found(self, mention: Mention) -> int:
        if not mention.relation:
            return self.facts.having(mention.words)
        anchor = self.facts.having(mention.anchor).bit_length() - 1
        return self.facts.related.get((mention.relation, anchor), 0) & self.facts.having(mention.words)

    def _some(self, without: str, chance: float) -> Words:
        """One concept of another attribute, or none."""
        if not self.dice.chance(chance):
            return ()
        keys = [key for key in _KEYS if ATTRIBUTE_OF[key] != without]
        return (self.dice.weighted(keys, [PRIOR[key] for key in keys]),)

    def _more(self, words: Words, without: str) -> Words:
        """One more concept that is true of the only thing with these."""
        thing = self.facts.things[self.facts.having(words).bit_length() - 1]
        said = {without, *(ATTRIBUTE_OF[key] for key in words)}
        keys = [key for key in true_of(*thing.identity) if ATTRIBUTE_OF[key] not in said]
        return in_order((*words, self.dice.weighted(keys, [PRIOR[key] for key in keys]))) if keys else words

    def _equal(self, attribute: str) -> Iterator[tuple[str, Inquiry]]:
        others = self._the(attribute, 9.0)
        for first in self._the(attribute, 9.0):
            second = next(others, None)
            foil = self._foil(attribute, first, second) if second else None
            if second is None or foil is None:
                continue
            if any(f.having(first) == f.having(second) for f in (self.facts, foil)):
                continue  # one thing in two words
            asked = Inquiry("equal", (Mention(first), Mention(second)), attribute)
            if self._differs(asked, foil):
                yield "compare_attribute", asked

    def _same(self, attribute: str) -> Iterator[tuple[str, Inquiry]]:
        for words in self._the(attribute, 4.3):
            foil = self._foil(attribute, words)
            asked = Inquiry("same", (Mention(self._some(attribute, 0.4)), Mention(words)), attribute)
            if foil is not None and self._differs(asked, foil):
                yield "same_attribute", asked

    def _relate(self) -> Iterator[tuple[str, Inquiry]]:
        for words in self._the("", 4.0):
            foil = self._foil("acts", words)
            if foil is None:
                continue
            for facts in (self.facts, foil):
                one = facts.having(words).bit_length() - 1
                for relation, often in _OFTEN.items():
                    held = facts.related.get((relation, one), 0)
                    for n in range(len(facts.things)):
                        if held >> n & 1 and self.dice.chance(often):
                            like = self._like(facts.things[n], self.dice.pick((0, 1, 1, 2)))
                            asked = Inquiry("relate", (Mention(like), Mention(words)), relations=(relation,))
                            if self._differs(asked, foil):
                                yield "relate", asked

    def _relate_both(self) -> Iterator[tuple[str, Inquiry]]:
        others = self._the("", 1.5)
        for first in self._the("", 1.5):
            second = next(others, None)
            foil = self._foil("acts", first, second) if second else None
            if second is None or foil is None or any(f.having(first) == f.having(second) for f in (self.facts, foil)):
                continue
            mentions = Mention(self._some("", 0.3)), Mention(first), Mention(second)
            asked = Inquiry("relate_both", mentions, relations=(self.dice.pick(BESIDE), self.dice.pick(BESIDE)))
            if self._differs(asked, foil):
                yield "relate", asked

    # Words

    def _spoken(self, asked: Inquiry) -> Inquiry:
        """With words that mean the same for some of the concepts."""
        mentions = tuple(Mention(self._said(m.words), m.relation, self._said(m.anchor)) for m in asked.mentions)
        return asked._replace(mentions=mentions)

    def _said(self, words: Words) -> Words:
        return tuple(self._word(key) for key in words)

    def _word(self, key: str) -> str:
        same = WORDS.get(key, (key,))
        return self.dice.pick(same) if len(same) > 1 and self.dice.chance(0.5) else key


_QUERY_RATES = {"colour": 6.0, "kind": 10.0, "size": 10.0, "material": 6.0}
_OFTEN = {name: 0.3 if predicate in ACTS else 0.06 for name, (predicate, _) in RELATIONS.items()}
