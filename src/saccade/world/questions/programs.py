"""Programs executed on the true scene: a question's answer, or a refusal where "the cube" is one of several.

Expressions that refer to a thing have two steps of their own: "nth" ("2 left": of some things the second from the left)
and "side" (those in the left or right half of the picture).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from saccade.batch.programs import Program, Step
from saccade.core.errors import SaccadeError, not_among
from saccade.world.catalogue import PREDICATES
from saccade.world.grammar import ATTRIBUTES, PASSIVES
from saccade.world.questions.metaconcepts import CONCEPTS, WORDS
from saccade.world.scene import Scene, Thing

# What `relate` takes: the predicates, and for acts what suffers them: "held by" leads from a doer to what it holds.
RELATIONS: dict[str, tuple[str, bool]] = {name: (name, False) for name in PREDICATES} | {
    words[0]: (name, True) for name, words in PASSIVES.items()
}

SIDES = ("left", "right")
STANDS_APART = 0.05  # in x, of the picture's width: from here on the order of two things is plain to see


class Facts:
    """A scene as sets of things, each a number with a bit for every thing: those of a value, those in a relation."""

    def __init__(self, scene: Scene) -> None:
        self.things: tuple[Thing, ...] = scene.things
        self.all = (1 << len(scene.things)) - 1
        self.of_value = dict.fromkeys(WORDS, 0)
        for n, thing in enumerate(scene.things):
            for value in thing.identity:
                self.of_value[value] |= 1 << n
        self._having: dict[str, int] = {}
        self.related: dict[tuple[str, int], int] = {}  # (relation, thing it is to) → things in it
        for r in scene.relations:
            active = (r.predicate, r.object)
            self.related[active] = self.related.get(active, 0) | 1 << r.subject
            if r.predicate in PASSIVES:
                passive = (PASSIVES[r.predicate][0], r.subject)
                self.related[passive] = self.related.get(passive, 0) | 1 << r.object

    def having(self, words: Sequence[str]) -> int:
        """The things that all these concepts are true of."""
        found = self.all
        for word in words:
            if word not in self._having:
                self._having[word] = sum(self.of_value[value] for value in CONCEPTS[word].values)
            found &= self._having[word]
        return found

    def sharing(self, thing: int, attribute: str) -> int:
        """The other things that share an attribute with a thing."""
        return self.of_value[getattr(self.things[thing], attribute)] & ~(1 << thing)

    def nth(self, found: int, argument: str) -> int:
        """Of some things "2 left", the second from the left; none if there are fewer, or it is not plain to see.

        Raises: SaccadeError if the argument is no number and side.
        """
        number, _, side = argument.partition(" ")
        if not number.isdecimal() or side not in SIDES:
            raise SaccadeError(f'"nth" wants a number and a side ("2 left"), not "{argument}"')
        order = sorted((n for n in range(len(self.things)) if found >> n & 1), key=lambda n: self.things[n].x)
        places = order if side == "left" else order[::-1]
        at = int(number) - 1
        if not 0 <= at < len(places):
            return 0
        own = self.things[places[at]].x
        near = any(abs(self.things[n].x - own) < STANDS_APART for n in places if n != places[at])
        return 0 if near else 1 << places[at]

    def on_side(self, side: str) -> int:
        """The things whose middle lies in a half of the picture."""
        _known(side, SIDES, "side")
        left = sum(1 << n for n, thing in enumerate(self.things) if thing.x < 0.5)
        return left if side == "left" else self.all & ~left

    def run(self, program: Program) -> list[int | bool | str]:
        """The result of every step: a set of things, a number, a truth, or the name of a value.

        Raises: SaccadeError if a step is not known, or wants one thing and gets none or several.
        """
        results: list[int | bool | str] = []
        for step in program:
            if len(step.inputs) != _INPUTS.get(step.op) or any(not 0 <= n < len(results) for n in step.inputs):
                raise SaccadeError(f'step {len(results)} of a program cannot be "{step.op}" of the steps {step.inputs}')
            results.append(self._step(step, [results[n] for n in step.inputs]))
        return results

    def _step(self, step: Step, given: list[int | bool | str]) -> int | bool | str:
        op, argument = step.op, step.argument
        if op == "scene":
            return self.all
        if op in ("and", "or", "not"):
            return all(given) if op == "and" else any(given) if op == "or" else not given[0]
        sets = [int(each) for each in given]
        if op in ("relate", "same", "query", "equal"):
            ones = [_the_one(op, each) for each in sets]
            if op == "relate":
                _known(argument, RELATIONS, "relation")
                return self.related.get((argument, ones[0]), 0)
            _known(argument, ATTRIBUTES, "attribute")
            if op == "same":
                return self.sharing(ones[0], argument)
            values: list[str] = [getattr(self.things[one], argument) for one in ones]
            return values[0] if op == "query" else values[0] == values[1]
        if op == "filter":
            _known(argument, CONCEPTS, "concept")
            return sets[0] & self.having((argument,))
        if op in ("union", "intersect"):
            return sets[0] | sets[1] if op == "union" else sets[0] & sets[1]
        if op == "exist":
            return sets[0] != 0
        if op in ("nth", "side"):
            return self.nth(sets[0], argument) if op == "nth" else sets[0] & self.on_side(argument)
        counts = [each.bit_count() for each in sets]
        if op == "count":
            return counts[0]
        difference = counts[0] - counts[1]
        return difference > 0 if op == "more" else difference < 0 if op == "fewer" else difference == 0


_INPUTS = {
    "scene": 0,
    **dict.fromkeys(("filter", "relate", "same", "exist", "count", "query", "not", "nth", "side"), 1),
    **dict.fromkeys(("union", "intersect", "equal", "more", "fewer", "as_many", "and", "or"), 2),
}


def _known(word: str, words: Collection[str], what: str) -> None:
    if word not in words:
        raise SaccadeError(f"the world has no {what} {not_among(word, words)}")


def _the_one(op: str, found: int) -> int:
    if found.bit_count() != 1:
        raise SaccadeError(f'"{op}" needs one thing, and there are {found.bit_count() or "none"} like that')
    return found.bit_length() - 1


def answer(program: Program, scene: Scene | Facts) -> str:
    """What a program finds: "yes" or "no", a number in digits, or the name of a kind, colour, size or material.

    Raises: SaccadeError if it speaks of one thing where there are none or several, or ends in a set of things.
    """
    if not program:
        raise SaccadeError("a program without steps has no answer")
    facts = scene if isinstance(scene, Facts) else Facts(scene)
    found = facts.run(program)[-1]
    if program[-1].op == "count" or isinstance(found, str):
        return str(found)
    if not isinstance(found, bool):
        raise SaccadeError(f'a program ends in an answer, not in the things that "{program[-1].op}" finds')
    return "yes" if found else "no"


def spelled(program: Program) -> str:
    """On one line: "exist(filter[red](relate[left of](filter[cube](scene))))"."""
    texts: list[str] = []
    for step in program:
        given = ", ".join(texts[n] for n in step.inputs)
        texts.append(step.op + (f"[{step.argument}]" if step.argument else "") + (f"({given})" if given else ""))
    return texts[-1]


def with_names(program: Program) -> Program:
    """The program with the catalogue's name for every concept: "ball" where the question said "sphere"."""
    return tuple(
        step._replace(argument=next(iter(CONCEPTS[step.argument].values)))
        if step.op == "filter" and CONCEPTS[step.argument].level == "basic"
        else step
        for step in program
    )
