"""Stories: things on a stage and what happens to them, event by event, with exact times.

A story is a scene and a list of events. What a moment looks like follows from it: `Story.at` plays the events up to a
time and gives the scene of that time, which is drawn like any other. Events last some quarters of a second.

    enter, leave      from or to the left or right
    go to, hide       to or behind another thing
    chase             two movers run the same way, one behind the other
    push, pick up     somebody with hands does it to a thing
    give              what is held changes hands
    jump, turn        two hops; another colour, after some flickering
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saccade.world.catalogue import KINDS
from saccade.world.sample import arrange, drawn_height
from saccade.world.scene import Scene, SceneRelation, Thing

TICK = 0.25  # seconds: every event begins and ends on one
EDGE = 0.12  # nobody stops nearer to the side of the picture
OUTSIDE = 0.32  # beyond the side, where nothing of a thing is seen
CLOSE = 0.05  # between two that stand beside each other
BEHIND = 0.16  # in depth, of one that hides
HOPS = 2
HOP = 0.6  # of its height


@dataclass(frozen=True)
class Event:
    """Who does what to whom: things by their places in the scene; what a verb does not take is None."""

    verb: str
    agent: int
    patient: int | None = None  # what is chased, pushed, picked up or given
    goal: int | None = None  # to whom or behind what
    value: str = ""  # left or right; the new colour
    start: float = 0.0  # seconds
    end: float = 0.0

    @property
    def meaning(self) -> tuple[str, int, int | None, int | None, str]:
        """All but the time: what a sentence says."""
        return self.verb, self.agent, self.patient, self.goal, self.value

    @property
    def things(self) -> frozenset[int]:
        return frozenset(n for n in (self.agent, self.patient, self.goal) if n is not None)

    def moved(self, seconds: float) -> Event:
        return replace(self, start=self.start + seconds, end=self.end + seconds)


@dataclass
class Actor:
    """A thing as it is at some time of a story."""

    thing: Thing
    home: float  # x where it stands when it has entered
    on_stage: bool = True
    holder: int | None = None
    hidden: bool = False
    lift: float = 0.0  # above the ground, in units of its height
    pose: str = "still"

    @property
    def half(self) -> float:
        return drawn_height(self.thing, self.thing.depth) * KINDS[self.thing.kind].width / 2

    def has(self, role: str) -> bool:
        return role in KINDS[self.thing.kind].roles

    def turn(self, x: float) -> None:
        self.thing = replace(self.thing, facing=1 if x >= self.thing.x else -1)

    def walk(self, x: float, share: float, depth: float | None = None) -> None:
        """Move a share of the way to `x`; whoever moves faces where it goes."""
        self.turn(x)
        deep = self.thing.depth if depth is None else self.thing.depth + (depth - self.thing.depth) * share
        self.thing = replace(self.thing, x=self.thing.x + (x - self.thing.x) * share, depth=deep)
        self.pose = "running" if 0 < share < 1 and self.has("mover") else "still"


@dataclass(frozen=True)
class Story:
    """A scene of things that start on or beside the stage, and what happens then."""

    id: str
    scene: Scene
    events: tuple[Event, ...]  # in the order in which they begin
    seconds: float
    offstage: frozenset[int] = frozenset()
    held: tuple[tuple[int, int], ...] = ()  # at the beginning: who holds what
    twin: str | None = None  # the id of the story that differs in the order of two events, or in who does what to whom

    def actors(self) -> list[Actor]:
        """Everybody at the beginning."""
        found = [Actor(thing, thing.x, n not in self.offstage) for n, thing in enumerate(self.scene.things)]
        for who, what in self.held:
            found[what].holder = who
        return found

    def at(self, time: float) -> Scene:
        """The scene of a time, in seconds. Things beside the stage stand outside of the picture."""
        actors = self.actors()
        for event in self.events:
            if time >= event.start:
                play(event, actors, min((time - event.start) / (event.end - event.start), 1.0))
        return replace(self.scene, id=f"{self.id}@{time:g}", **_staged(actors))

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "scene": self.scene.to_json(),
            "events": [vars(event) for event in self.events],
            "offstage": sorted(self.offstage),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Story:
        return Story(
            **{
                **value,
                "scene": Scene.from_json(value["scene"]),
                "events": tuple(Event(**event) for event in value["events"]),
                "offstage": frozenset(value["offstage"]),
                "held": tuple((who, what) for who, what in value["held"]),
            }
        )


def _staged(actors: Sequence[Actor]) -> dict[str, Any]:
    """Things and relations of a scene: held things are where their holders' hands are."""
    acts = tuple(SceneRelation(a.holder, "holding", n) for n, a in enumerate(actors) if a.holder is not None)
    standing = [a.thing if a.on_stage else replace(a.thing, x=-2.0) for a in actors]
    things = list(arrange(standing, acts))
    for n, actor in enumerate(actors):
        pose = "holding" if things[n].pose == "holding" and actor.pose == "still" else actor.pose
        things[n] = replace(things[n], pose=pose, y=round(things[n].y - actor.lift * things[n].height, 4))
    return {"things": tuple(things), "relations": acts}


def beside(mover: Actor, goal: Actor) -> float:
    """Where one stands that went up to another, on the side it came from."""
    side = -1 if mover.thing.x < goal.thing.x else 1
    return goal.thing.x + side * (mover.half + goal.half + CLOSE)


def inside(x: float) -> bool:
    return EDGE <= x <= 1 - EDGE


def _side(value: str) -> int:
    return -1 if value == "left" else 1


# What happens by the time that a share of an event is over. Each is called with everybody as they were when it began.


def _enter(event: Event, actors: list[Actor], share: float) -> None:
    own = actors[event.agent]
    outside = -OUTSIDE if event.value == "left" else 1 + OUTSIDE
    own.thing = replace(own.thing, x=outside)
    own.on_stage = True
    own.walk(own.home, share)


def _leave(event: Event, actors: list[Actor], share: float) -> None:
    own = actors[event.agent]
    own.walk(-OUTSIDE if event.value == "left" else 1 + OUTSIDE, share)
    own.hidden, own.on_stage = False, share < 1


def _go(event: Event, actors: list[Actor], share: float) -> None:
    own, goal = actors[event.agent], actors[_known(event.goal)]
    own.walk(beside(own, goal), share, goal.thing.depth)
    own.hidden = False


def _hide(event: Event, actors: list[Actor], share: float) -> None:
    own, goal = actors[event.agent], actors[_known(event.goal)]
    own.walk(goal.thing.x, share, goal.thing.depth + BEHIND)
    own.hidden = share == 1


def _chase(event: Event, actors: list[Actor], share: float) -> None:
    own, other = actors[event.agent], actors[_known(event.patient)]
    target, behind = _flight(own, other)
    early, late = min(share * 2, 1.0), max(share * 2 - 1, 0.0)
    side = 1 if target > other.thing.x else -1
    own.walk(other.thing.x - side * (own.half + other.half + CLOSE), early, other.thing.depth)  # it catches up …
    if late:
        own.walk(behind, late)
    other.walk(target, late)  # … and both run
    own.pose = "running" if 0 < share < 1 else "still"
    other.turn(target)
    own.turn(target)
    own.hidden = other.hidden = False


def _flight(own: Actor, other: Actor) -> tuple[float, float]:
    """Where the one that is chased ends, away from the other, and where its pursuer does."""
    side = 1 if other.thing.x >= own.thing.x else -1
    target = 1 - EDGE if side > 0 else EDGE
    return target, target - side * (own.half + other.half + CLOSE)


def _push(event: Event, actors: list[Actor], share: float) -> None:
    own, other, side = actors[event.agent], actors[_known(event.patient)], _side(event.value)
    early, late = min(share * 2, 1.0), max(share * 2 - 1, 0.0)
    contact = 0.95 * own.half + other.half
    own.walk(other.thing.x - side * contact, early, other.thing.depth + 0.01)
    pushed = other.thing.x + side * _reach(other, side) * late
    other.thing = replace(other.thing, x=pushed)
    if late:
        own.thing = replace(own.thing, x=pushed - side * contact, facing=side)
        own.pose = "pushing" if share < 1 else "still"
    own.hidden = False


def _reach(pushed: Actor, side: int) -> float:
    """How far it is pushed: a quarter of the picture, or to its edge."""
    room = (1 - EDGE - pushed.thing.x) if side > 0 else pushed.thing.x - EDGE
    return min(0.25, room)


def _pick_up(event: Event, actors: list[Actor], share: float) -> None:
    own, other = actors[event.agent], actors[_known(event.patient)]
    own.walk(beside(own, other), min(share * 1.5, 1.0), other.thing.depth)
    own.hidden = False
    if share * 1.5 >= 1:
        other.holder = event.agent


def _give(event: Event, actors: list[Actor], share: float) -> None:
    own, other = actors[event.agent], actors[_known(event.goal)]
    own.walk(beside(own, other), min(share * 1.5, 1.0), other.thing.depth)
    other.turn(own.thing.x)
    own.hidden = other.hidden = False
    if share * 1.5 >= 1:
        actors[_known(event.patient)].holder = event.goal


def _jump(event: Event, actors: list[Actor], share: float) -> None:
    place = share * HOPS % 1.0 if share < 1 else 0.0
    actors[event.agent].lift = HOP * 4 * place * (1 - place)


def _turn(event: Event, actors: list[Actor], share: float) -> None:
    own = actors[event.agent]
    if share == 1 or int(share * 6) % 2:  # flickers, and ends with the new colour
        own.thing = replace(own.thing, colour=event.value)


PLAYED: dict[str, Callable[[Event, list[Actor], float], None]] = {
    "enter": _enter,
    "leave": _leave,
    "go to": _go,
    "hide": _hide,
    "chase": _chase,
    "push": _push,
    "pick up": _pick_up,
    "give": _give,
    "jump": _jump,
    "turn": _turn,
}


def play(event: Event, actors: list[Actor], share: float) -> None:
    """Put everybody where they are when `share` of the event is over; those whom it is not about are left alone."""
    actors[event.agent].pose = "still"
    PLAYED[event.verb](event, actors, share)
    held = [a for a in actors if a.holder is not None]
    for one in held:  # goes where its holder goes
        bearer = actors[_known(one.holder)].thing
        one.thing = replace(one.thing, x=bearer.x, depth=bearer.depth)


def _known(number: int | None) -> int:
    assert number is not None, "a verb without what it is done to"
    return number


@dataclass
class Stage:
    """A story as it is being made up: who is where now, and what has happened."""

    story: Story
    time: float = TICK * 2
    actors: list[Actor] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.actors = self.story.actors()

    def possible(self, event: Event) -> bool:
        """Whether it can happen now and be seen."""
        return POSSIBLE[event.verb](event, self.actors) and self._stands_after(event)

    def add(self, event: Event, start: float, end: float) -> None:
        timed = replace(event, start=round(start, 2), end=round(end, 2))
        play(timed, self.actors, 1.0)
        self.events.append(timed)
        self.time = max(self.time, timed.end)

    def _stands_after(self, event: Event) -> bool:
        """Whether all who are on stage then stand inside the picture and nobody in the place of another."""
        after = [replace(actor) for actor in self.actors]
        play(event, after, 1.0)
        seen = [a for a in after if a.on_stage and a.holder is None]
        if not all(inside(a.thing.x) for a in seen):
            return False
        open_ = [a for a in seen if not a.hidden]
        return all(
            abs(a.thing.x - b.thing.x) > 0.8 * (a.half + b.half) or abs(a.thing.depth - b.thing.depth) > BEHIND / 2
            for n, a in enumerate(open_)
            for b in open_[:n]
        )


def _free(actors: Sequence[Actor], *numbers: int | None) -> bool:
    """Whether all of these are on stage, and nobody holds them."""
    return all(actors[n].on_stage and actors[n].holder is None for n in numbers if n is not None)


def _hands(actors: Sequence[Actor], who: int) -> list[int]:
    return [n for n, actor in enumerate(actors) if actor.holder == who]


def _apart(actors: Sequence[Actor], a: int, b: int | None, least: float = 0.12) -> bool:
    """Whether there is a way to go between two."""
    one, two = actors[a], actors[_known(b)]
    return abs(one.thing.x - two.thing.x) - one.half - two.half > least


def _can_chase(event: Event, actors: Sequence[Actor]) -> bool:
    own, other = actors[event.agent], actors[_known(event.patient)]
    if not (_free(actors, event.agent, event.patient) and own.has("mover") and other.has("mover")):
        return False
    target, behind = _flight(own, other)
    side = 1 if target > other.thing.x else -1
    caught = other.thing.x - side * (own.half + other.half + CLOSE)
    return abs(target - other.thing.x) > 0.2 and inside(behind) and inside(caught) and not own.hidden | other.hidden


def _can_push(event: Event, actors: Sequence[Actor]) -> bool:
    own, other, side = actors[event.agent], actors[_known(event.patient)], _side(event.value)
    starts = other.thing.x - side * (0.95 * own.half + other.half)
    return (
        _free(actors, event.agent, event.patient)
        and own.has("handed")
        and other.has("pushable")
        and not _hands(actors, event.agent)
        and _reach(other, side) > 0.15
        and inside(starts)
        and (own.thing.x - other.thing.x) * side < 0
    )


def _can_hide(event: Event, actors: Sequence[Actor]) -> bool:
    own, goal = actors[event.agent], actors[_known(event.goal)]
    small = drawn_height(own.thing, goal.thing.depth + BEHIND) < 0.85 * drawn_height(goal.thing, goal.thing.depth)
    return (
        _free(actors, event.agent, event.goal)
        and own.has("mover")
        and small
        and own.half < goal.half
        and not _hands(actors, event.agent)
        and not own.hidden
        and not any(a.hidden for a in actors)
        and _apart(actors, event.agent, event.goal)
        and goal.thing.material != "glass"
    )


def _can_give(event: Event, actors: Sequence[Actor]) -> bool:
    return (
        _free(actors, event.agent, event.goal)
        and event.patient in _hands(actors, event.agent)
        and actors[_known(event.goal)].has("handed")
        and not _hands(actors, _known(event.goal))
        and _apart(actors, event.agent, event.goal)
    )


def _can_pick_up(event: Event, actors: Sequence[Actor]) -> bool:
    own, other = actors[event.agent], actors[_known(event.patient)]
    return (
        _free(actors, event.agent, event.patient)
        and own.has("handed")
        and other.has("holdable")
        and other.thing.size == "small"
        and own.thing.size != "small"
        and not _hands(actors, event.agent)
        and _apart(actors, event.agent, event.patient, 0.05)
    )


POSSIBLE: dict[str, Callable[[Event, Sequence[Actor]], bool]] = {
    "enter": lambda event, actors: not actors[event.agent].on_stage and actors[event.agent].has("mover"),
    "leave": lambda event, actors: _free(actors, event.agent) and actors[event.agent].has("mover"),
    "go to": lambda event, actors: (
        _free(actors, event.agent, event.goal)
        and actors[event.agent].has("mover")
        and not actors[_known(event.goal)].hidden
        and _apart(actors, event.agent, event.goal, 0.15)
    ),
    "hide": _can_hide,
    "chase": _can_chase,
    "push": _can_push,
    "pick up": _can_pick_up,
    "give": _can_give,
    "jump": lambda event, actors: (
        _free(actors, event.agent) and actors[event.agent].has("creature") and not actors[event.agent].hidden
    ),
    "turn": lambda event, actors: (
        _free(actors, event.agent)
        and not actors[event.agent].hidden
        and actors[event.agent].thing.colour != event.value
    ),
}
