"""What is said of a story: sentences on one event and on several, with their roles, and when they happen.

Roles are those of PropBank: V the verb, ARG0 who does it, ARG1 to whom or what, ARG2 for whom or into what, ARGM-DIR
from where or whereto, ARGM-LOC where, ARGM-TMP when. Which word belongs to which is known exactly.

A sentence of two events has words for their order. "A before B" and "A after B" are about A: they happen when A does,
and if A happens twice, only when the sentence is true of it. "A, then B" happens from A's beginning to B's end.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.world.dice import Dice
from saccade.world.grammar import COLOUR_WORDS, PLACES, article, attribute_word, word_for
from saccade.world.videos.sample import can_exchange, exchanged
from saccade.world.videos.story import Event, Story

# (role, words) one after the other; <agent>, <patient>, <goal> are things, <value> is a side or a colour.
WORDINGS: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = {
    "enter": (
        (("ARG0", "<agent>"), ("V", "enters"), ("ARGM-DIR", "from the <value>")),
        (("ARG0", "<agent>"), ("V", "comes in"), ("ARGM-DIR", "from the <value>")),
        (("ARG0", "<agent>"), ("V", "appears"), ("ARGM-LOC", "on the <value>")),
    ),
    "leave": (
        (("ARG0", "<agent>"), ("V", "leaves"), ("ARGM-DIR", "to the <value>")),
        (("ARG0", "<agent>"), ("V", "goes away"), ("ARGM-DIR", "to the <value>")),
    ),
    "go to": (
        (("ARG0", "<agent>"), ("V", "goes"), ("ARGM-DIR", "to <goal>")),
        (("ARG0", "<agent>"), ("V", "moves over"), ("ARGM-DIR", "to <goal>")),
        (("ARG0", "<agent>"), ("V", "approaches"), ("ARG1", "<goal>")),
    ),
    "hide": (
        (("ARG0", "<agent>"), ("V", "hides"), ("ARGM-LOC", "behind <goal>")),
        (("ARG0", "<agent>"), ("V", "disappears"), ("ARGM-LOC", "behind <goal>")),
    ),
    "chase": (
        (("ARG0", "<agent>"), ("V", "chases"), ("ARG1", "<patient>")),
        (("ARG0", "<agent>"), ("V", "runs after"), ("ARG1", "<patient>")),
    ),
    "push": (
        (("ARG0", "<agent>"), ("V", "pushes"), ("ARG1", "<patient>"), ("ARGM-DIR", "to the <value>")),
        (("ARG0", "<agent>"), ("V", "shoves"), ("ARG1", "<patient>"), ("ARGM-DIR", "to the <value>")),
    ),
    "pick up": (
        (("ARG0", "<agent>"), ("V", "picks up"), ("ARG1", "<patient>")),
        (("ARG0", "<agent>"), ("V", "takes"), ("ARG1", "<patient>")),
    ),
    "give": (
        (("ARG0", "<agent>"), ("V", "gives"), ("ARG1", "<patient>"), ("ARG2", "to <goal>")),
        (("ARG0", "<agent>"), ("V", "hands"), ("ARG1", "<patient>"), ("ARG2", "to <goal>")),
    ),
    "jump": ((("ARG0", "<agent>"), ("V", "jumps")), (("ARG0", "<agent>"), ("V", "hops"))),
    "turn": (
        (("ARG1", "<agent>"), ("V", "turns"), ("ARG2", "<value>")),
        (("ARG1", "<agent>"), ("V", "becomes"), ("ARG2", "<value>")),
    ),
}
KINDS = ("event", "then", "before", "after", "while")


@dataclass(frozen=True)
class Role:
    """The words `start` to `end` (exclusive) of a sentence, what part they have in an event, and whom they name."""

    name: str
    start: int
    end: int
    thing: int | None = None


@dataclass(frozen=True)
class Clause:
    """What a sentence says of one event; the first role is the verb's."""

    roles: tuple[Role, ...]
    event: int  # its place in the story

    @property
    def verb(self) -> Role:
        return next(role for role in self.roles if role.name == "V")


@dataclass(frozen=True)
class VideoCaption:
    """A sentence true of a story. `distractor` has the same words and is false of it; None where there is none."""

    text: str
    kind: str  # one of KINDS
    clauses: tuple[Clause, ...]
    spans: tuple[tuple[float, float], ...]  # when it happens, in seconds
    distractor: str | None = None

    @property
    def words(self) -> list[str]:
        """As roles count them: commas are words."""
        return self.text.replace(",", " ,").split()

    def to_json(self) -> dict[str, Any]:
        clauses = [{"event": c.event, "roles": [list(vars(r).values()) for r in c.roles]} for c in self.clauses]
        return {**vars(self), "clauses": clauses, "spans": [list(span) for span in self.spans]}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> VideoCaption:
        clauses = tuple(Clause(tuple(Role(*r) for r in c["roles"]), c["event"]) for c in value["clauses"])
        spans = tuple((start, end) for start, end in value["spans"])
        return VideoCaption(**{**value, "clauses": clauses, "spans": spans})


def caption_story(story: Story, dice: Dice) -> tuple[VideoCaption, ...]:
    """Every event in a sentence, and every two neighbours in one or two with words for their order."""
    seen: dict[tuple[object, ...], int] = {}
    for n, event in enumerate(story.events):
        seen.setdefault(event.meaning, n)
    captions = [_caption(story, "event", (n,), dice) for n in seen.values()]
    for second in range(1, len(story.events)):
        first = second - 1
        a, b = story.events[first], story.events[second]
        if a.meaning == b.meaning:
            continue
        if a.end <= b.start:
            captions += [_caption(story, kind, (first, second), dice) for kind in _orders(story, first, second, dice)]
        elif a.start == b.start:
            captions.append(_caption(story, "while", (first, second), dice))
    return tuple({caption.text: caption for caption in captions}.values())


def is_true(caption: VideoCaption, of: Story, story: Story) -> bool:
    """Whether a caption of one story is true of another with the same things."""
    told = sorted((of.events[clause.event] for clause in caption.clauses), key=lambda event: (event.start, event.end))
    found = [[event for event in story.events if event.meaning == one.meaning] for one in told]
    if len(told) == 1:
        return bool(found[0])
    if caption.kind == "while":
        return any(a.start < b.end and b.start < a.end for a in found[0] for b in found[1])
    return any(a.end <= b.start for a in found[0] for b in found[1])


def said_first(captions: Sequence[VideoCaption], count: int) -> tuple[VideoCaption, ...]:
    """`count` of them for matching: those of several events first, since these tell a story from its twin."""
    ordered = sorted(captions, key=lambda caption: caption.kind == "event")
    return tuple(ordered[:count])


def _orders(story: Story, first: int, second: int, dice: Dice) -> list[str]:
    """Words for the order of two events that are true, and mean one time only."""
    told = story.events[first], story.events[second]
    counts = [sum(event.meaning == one.meaning for event in story.events) for one in told]
    options = [kind for kind, known in (("before", counts[1]), ("after", counts[0])) if known == 1]
    options = [kind for kind in options if len(_spans(story, kind, told)) == 1]
    return ["then", *([dice.pick(options)] if options else [])]


def _caption(story: Story, kind: str, places: tuple[int, ...], dice: Dice) -> VideoCaption:
    """A sentence on the events at `places`, in the order in which they happen."""
    plan = _Plan(kind, dice.below(1 << 20))
    told = tuple(story.events[n] for n in places)
    writer = _write(story, plan, told, places)
    return VideoCaption(
        writer.text, kind, tuple(writer.clauses), _spans(story, kind, told), _distractor(story, plan, told, places)
    )


def _spans(story: Story, kind: str, told: Sequence[Event]) -> tuple[tuple[float, float], ...]:
    if kind == "then":
        return ((told[0].start, told[1].end),)
    main = told[1] if kind == "after" else told[0]
    times = [event for event in story.events if event.meaning == main.meaning]
    if kind == "before":
        times = [event for event in times if event.end <= told[1].start]
    if kind == "after":
        times = [event for event in times if event.start >= told[0].end]
    return tuple((event.start, event.end) for event in times)


def _distractor(story: Story, plan: _Plan, told: tuple[Event, ...], places: tuple[int, ...]) -> str | None:
    """The same words of another story: the events in the other order, or doer and the other exchanged."""
    if plan.kind in ("then", "before", "after"):
        late = [event for event in story.events if event.meaning == told[1].meaning]
        early = [event for event in story.events if event.meaning == told[0].meaning]
        if any(one.end <= other.start for one in late for other in early):
            return None
        return _write(story, plan, told[::-1], places[::-1]).text
    if plan.kind == "event" and can_exchange(told[0], story.scene):
        swapped = exchanged(told[0])
        assert swapped is not None
        if all(event.meaning != swapped.meaning for event in story.events):
            return _write(story, plan, (swapped,), places).text
    return None


@dataclass(frozen=True)
class _Plan:
    """How to say it: the kind of sentence, and the seed of its words, which are the same for the same verb."""

    kind: str
    seed: int


def _write(story: Story, plan: _Plan, told: tuple[Event, ...], places: tuple[int, ...]) -> _Writer:
    writer = _Writer(story, plan.seed)
    clauses = list(zip(told, places, strict=True))
    form = plan.seed // 7 % 2
    if plan.kind == "event":
        writer.clause(*clauses[0])
        if plan.seed // 3 % 5 == 0:
            writer.place()
    elif plan.kind == "then":
        writer.clause(*clauses[0])
        writer.say(", and" if form else ",")
        writer.then(*clauses[1])
    else:
        word = plan.kind
        main, side = clauses if word != "after" else clauses[::-1]
        if form and word != "while":
            writer.subordinate(word, side)
            writer.say(",")
            writer.clause(*main, when=0)
        else:
            writer.clause(*main)
            writer.subordinate(word, side, late=True)
    return writer


class _Writer:
    """Words and roles, one clause after the other."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story, self.seed = story, seed
        self.words: list[str] = []
        self.clauses: list[Clause] = []
        self.named: set[int] = set()
        self.waiting: tuple[int, int] | None = None  # the words of a clause that says when

    @property
    def text(self) -> str:
        return " ".join(self.words).replace(" ,", ",")

    def say(self, text: str) -> tuple[int, int]:
        start = len(self.words)
        self.words += text.split()
        return start, len(self.words)

    def clause(self, event: Event, place: int, when: int | None = None) -> None:
        roles = []
        wordings = WORDINGS[event.verb]
        for name, pattern in wordings[zlib.crc32(f"{self.seed}/{event.verb}".encode()) % len(wordings)]:
            start, thing = len(self.words), None
            for word in pattern.split():
                if word in ("<agent>", "<patient>", "<goal>"):
                    thing = getattr(event, word[1:-1])
                    self.say(self.noun_phrase(thing))
                elif word == "<value>":
                    colour = event.verb == "turn"
                    self.say(word_for(event.value, COLOUR_WORDS[event.value], self.seed) if colour else event.value)
                else:
                    self.say(word)
            roles.append(Role(name, start, len(self.words), thing))
        if when is not None and self.waiting is not None:
            roles.append(Role("ARGM-TMP", *self.waiting))
        self.clauses.append(Clause(tuple(roles), place))

    def then(self, event: Event, place: int) -> None:
        self.waiting = self.say("then")
        self.clause(event, place, when=0)

    def subordinate(self, word: str, told: tuple[Event, int], late: bool = False) -> None:
        """ "before the dog jumps": says when the other clause, which comes later or has been said, happens."""
        start, _ = self.say(word)
        self.clause(*told)
        self.waiting = (start, len(self.words))
        if late:
            main = self.clauses[-2]
            self.clauses[-2] = replace(main, roles=(*main.roles, Role("ARGM-TMP", *self.waiting)))

    def place(self) -> None:
        background = self.story.scene.background
        where = self.say(word_for(background, PLACES[background], self.seed))
        last = self.clauses[-1]
        self.clauses[-1] = replace(last, roles=(*last.roles, Role("ARGM-LOC", *where)))

    def noun_phrase(self, number: int) -> str:
        """As much as tells the thing from all others; a thing whose colour changes is spoken of without it."""
        things = self.story.scene.things
        thing = things[number]
        changes = {event.agent for event in self.story.events if event.verb == "turn"}
        alike = sum(other.kind == thing.kind for other in things) > 1
        words = [attribute_word(thing, "kind", self.seed)]
        roll = self.seed // 11 + number
        if number not in changes and (alike or roll % 4):
            words.insert(0, attribute_word(thing, "colour", self.seed))
        if not roll % 7:
            words.insert(0, attribute_word(thing, "size", self.seed))
        known = number in self.named or self.seed % 3 > 0
        self.named.add(number)
        return " ".join(["the" if known else article(words[0]), *words])
