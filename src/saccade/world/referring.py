"""Expressions that single out one thing of a scene, and dialogs that narrow its things down to one.

*Expressions.* Every thing of a scene is meant equally often, so that a picture alone does not tell which. A kind of
expression is drawn for it, and where that kind cannot single it out, the next that can:

    minimal      "the red cube": as few words as will do
    redundant    "the large red wooden cube": one or two more
    ordinal      "the second mug from the left"
    relation     "the ball under the table", "the dog wearing the hat"

*Dialogs.* One asks, the other answers of the thing that is meant, until one thing alone fits all answers: what it is,
what it is like, how it stands to another thing, in which half of the picture it is. Most questions divide what is left;
some, as people's, are wasted.

Every expression and every turn comes with a program, whose things are those that it is true of.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from saccade.batch.programs import Program, Step
from saccade.world.catalogue import ACTS, MATERIALS
from saccade.world.dice import Dice
from saccade.world.grammar import ATTRIBUTES, article
from saccade.world.questions.make import ATTRIBUTE_OF, BESIDE, PRIOR, true_of
from saccade.world.questions.metaconcepts import CONCEPTS, PARTS, SAID, WORDS
from saccade.world.questions.programs import RELATIONS, SIDES, Facts
from saccade.world.questions.wording import RELATION_WORDS, Inquiry, Mention, Words, in_order, noun_phrase, program_of
from saccade.world.scene import Scene

KINDS = ("minimal", "redundant", "ordinal", "relation")
OFTEN = (3.5, 2.0, 2.0, 2.5)  # how often each is drawn
EXPRESSIONS, DIALOGS = 3, 2  # of each thing
MOST_TURNS = 8
WASTED = 0.15  # of turns, that need not divide what is left
NUMBERS = ("first", "second", "third", "fourth")


class Expression(NamedTuple):
    kind: str  # one of KINDS
    text: str
    program: Program  # finds the one thing
    thing: int


class Turn(NamedTuple):
    question: str
    answer: str  # "yes", "no", or a value
    program: Program  # finds the things that are so: those of "yes", or of the value

    @property
    def text(self) -> str:
        return f"{self.question} {self.answer}"

    def fitting(self, facts: Facts) -> int:
        """The things that the answer is true of."""
        found = int(facts.run(self.program)[-1])
        return facts.all & ~found if self.answer == "no" else found


class Dialog(NamedTuple):
    turns: tuple[Turn, ...]
    thing: int


def refer(scene: Scene) -> tuple[Expression, ...]:
    """Expressions for every thing of a scene, the same for the same scene; none where one thing stands alone."""
    speaker = _ExpressionMaker(scene, "expressions")
    things = range(len(scene.things)) if len(scene.things) > 1 else ()
    drawn = (speaker.expression(thing) for thing in things for _ in range(EXPRESSIONS))
    return tuple(expression for expression in drawn if expression is not None)


def discuss(scene: Scene) -> tuple[Dialog, ...]:
    """Dialogs for every thing of a scene."""
    speaker = _ExpressionMaker(scene, "dialogs")
    things = range(len(scene.things)) if len(scene.things) > 1 else ()
    drawn = (speaker.dialog(thing) for thing in things for _ in range(DIALOGS))
    return tuple(dialog for dialog in drawn if dialog is not None)


def having(words: Words) -> Program:
    """Finds the things that all these concepts are true of."""
    return program_of(Inquiry("exist", (Mention(words),)))[:-1]


def then(program: Program, op: str, argument: str) -> Program:
    return (*program, Step(op, (len(program) - 1,), argument))


class _ExpressionMaker:
    def __init__(self, scene: Scene, what: str) -> None:
        self.facts, self.dice = Facts(scene), Dice("referring", what, scene.id, scene.seed)

    # Expressions

    def expression(self, thing: int) -> Expression | None:
        """Of the kind that was drawn, or the next kind that is possible; None if none is."""
        first = KINDS.index(self.dice.weighted(KINDS, OFTEN))
        for kind in (*KINDS[first:], *KINDS[:first]):
            found: tuple[str, Program] | None = getattr(self, f"_{kind}")(thing)
            if found is not None:
                return Expression(kind, *found, thing)
        return None

    def _like(self, thing: int) -> list[str]:
        """One concept of each attribute, in any order, that is true of a thing."""
        true = true_of(*self.facts.things[thing].identity)
        chosen = []
        for name in self.dice.shuffled(tuple(ATTRIBUTES)):
            own = [key for key in true if ATTRIBUTE_OF[key] == name]
            chosen.append(self.dice.weighted(own, [PRIOR[key] for key in own]))
        return chosen

    def _fewest(self, thing: int, like: Sequence[str], within: int) -> Words | None:
        """As few concepts as single a thing out of some; of as few, some that name its kind."""
        for count in range(len(like) + 1):
            fitting = [
                in_order(words)
                for words in combinations(like, count)
                if self.facts.having(words) & within == 1 << thing
            ]
            named = [words for words in fitting if any(ATTRIBUTE_OF[word] == "kind" for word in words)]
            if fitting:
                return self.dice.pick(named or fitting)
        return None

    def _minimal(self, thing: int) -> tuple[str, Program] | None:
        words = self._fewest(thing, self._like(thing), self.facts.all)
        return None if not words else (f"the {self._noun(words)}", having(words))

    def _redundant(self, thing: int) -> tuple[str, Program] | None:
        like = self._like(thing)
        words = self._fewest(thing, like, self.facts.all)
        more = [word for word in like if words and word not in words]
        if not words or not more:
            return None
        words = in_order((*words, *more[: self.dice.pick((1, 1, 2))]))
        return f"the {self._noun(words)}", having(words)

    def _ordinal(self, thing: int) -> tuple[str, Program] | None:
        """Among those of its kind; where it is the only one, among all."""
        kind = self.facts.things[thing].kind
        words = (kind,) if self.facts.having((kind,)).bit_count() > 1 else ()
        places = [(n, side) for side in SIDES for n in range(1, len(NUMBERS) + 1)]
        for number, side in self.dice.shuffled(places):
            program = then(having(words), "nth", f"{number} {side}")
            if self.facts.run(program)[-1] == 1 << thing:
                noun = self._noun(words)
                at_end = number == 1 and self.dice.chance(0.7)
                text = f"{side}most {noun}" if at_end else f"{NUMBERS[number - 1]} {noun} from the {side}"
                return f"the {text}", program
        return None

    def _relation(self, thing: int) -> tuple[str, Program] | None:
        held = [key for key, found in self.facts.related.items() if found >> thing & 1]
        rates = [4.0 if RELATIONS[relation][0] in ACTS else 1.0 for relation, _ in held]
        while held:
            chosen = self.dice.weighted(held, rates)
            del rates[held.index(chosen)]
            held.remove(chosen)
            relation, other = chosen
            anchor = self._fewest(other, self._like(other), self.facts.all)
            like = self._like(thing)
            words = self._fewest(thing, like, self.facts.related[chosen])
            if anchor and words is not None:
                if not words and self.dice.chance(0.7):
                    words = in_order(word for word in like if ATTRIBUTE_OF[word] == "kind")
                mention = Mention(words, relation, anchor)
                said = f"the {self._noun(words)} {self.dice.pick(RELATION_WORDS[relation])} the {self._noun(anchor)}"
                return said, program_of(Inquiry("exist", (mention,)))[:-1]
        return None

    def _noun(self, words: Words) -> str:
        return noun_phrase(tuple(self._word(word) for word in words), self.dice)

    def _word(self, key: str) -> str:
        """Sometimes another word that means the same."""
        same = WORDS.get(key, (key,))
        return self.dice.pick(same) if len(same) > 1 and self.dice.chance(0.5) else key

    # Dialogs

    def dialog(self, thing: int) -> Dialog | None:
        """None if what is left cannot be divided."""
        left, turns, asked = self.facts.all, list[Turn](), set[str]()
        while left.bit_count() > 1:
            if len(turns) == MOST_TURNS:
                return None
            turn = self._turn(thing, left, asked, divides=not self.dice.chance(WASTED))
            if turn is None:
                return None
            asked.add(turn.question)
            turns.append(turn)
            left &= turn.fitting(self.facts)
        return Dialog(tuple(turns), thing)

    def _turn(self, thing: int, left: int, asked: set[str], divides: bool) -> Turn | None:
        forms = (self._ask_what, self._ask_value, self._ask_relation, self._ask_side)
        for _ in range(40):
            turn = self.dice.weighted(forms, (5, 1.5, 2, 1))(thing, left)
            if turn is not None and turn.question not in asked and self._divides(turn, left, divides):
                return turn
        nth = [self._ask_nth(thing, n, side) for side in SIDES for n in range(1, len(NUMBERS) + 1)]
        return next((turn for turn in nth if turn.question not in asked and self._divides(turn, left, True)), None)

    def _divides(self, turn: Turn, left: int, divides: bool) -> bool:
        return not divides or 0 < (turn.fitting(self.facts) & left).bit_count() < left.bit_count()

    def _answered(self, question: str, program: Program, thing: int) -> Turn:
        found = int(self.facts.run(program)[-1])
        return Turn(question, "yes" if found >> thing & 1 else "no", program)

    def _one_of(self, left: int) -> int:
        return self.dice.pick([n for n in range(len(self.facts.things)) if left >> n & 1])

    def _ask_what(self, thing: int, left: int) -> Turn:
        """Whether it is what one of the things left is."""
        key = self.dice.pick(self._like(self._one_of(left)))
        return self._answered(self._is_it(self._word(key)), having((key,)), thing)

    def _is_it(self, word: str) -> str:
        concept = CONCEPTS[word]
        if concept.attribute == "kind":
            noun = f"thing with {PARTS[word]}" if word in PARTS else word
            return f"is it {article(noun)} {noun}?"
        if word in MATERIALS and word not in ATTRIBUTES["material"][word]:
            return f"is it made of {word}?"
        return f"is it {SAID.get(word, word)}?"

    def _ask_value(self, thing: int, left: int) -> Turn:
        name = self.dice.pick(("colour", "size", "material"))
        value: str = getattr(self.facts.things[thing], name)
        question = {"colour": "what colour is it?", "size": "what size is it?", "material": "what is it made of?"}[name]
        return Turn(question, value, having((value,)))

    def _ask_relation(self, thing: int, left: int) -> Turn | None:
        relation, other = self.dice.pick(BESIDE), self.dice.below(len(self.facts.things))
        anchor = self._fewest(other, self._like(other), self.facts.all)
        if not anchor:
            return None
        question = f"is it {self.dice.pick(RELATION_WORDS[relation])} the {self._noun(anchor)}?"
        return self._answered(question, then(having(anchor), "relate", relation), thing)

    def _ask_side(self, thing: int, left: int) -> Turn | None:
        """Not where something that is left stands in the middle."""
        if any(abs(self.facts.things[n].x - 0.5) < 0.04 for n in range(len(self.facts.things)) if left >> n & 1):
            return None
        side = self.dice.pick(SIDES)
        return self._answered(f"is it in the {side} half of the picture?", then(having(()), "side", side), thing)

    def _ask_nth(self, thing: int, number: int, side: str) -> Turn:
        question = f"is it the {NUMBERS[number - 1]} thing from the {side}?"
        return self._answered(question, then(having(()), "nth", f"{number} {side}"), thing)
