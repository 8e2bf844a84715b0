"""Stories drawn at random: who is there, and two to four things that happen; and twins of stories.

Twins begin alike and have the same words: two events in the other order, or who does what to whom exchanged. An event
may happen twice with another between them, so that only "before" and "after" tell which time is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from saccade.world.catalogue import BACKGROUNDS, COLOURS, KINDS, LIGHTINGS, MATERIALS, column, kinds_with
from saccade.world.dice import Dice, seed_of
from saccade.world.sample import drawn_height, foot
from saccade.world.scene import Scene, Thing
from saccade.world.videos.story import EDGE, TICK, Event, Stage, Story

WEIGHTS = {
    "enter": 5.0,
    "leave": 1.2,
    "go to": 1.0,
    "hide": 3.0,
    "chase": 2.5,
    "push": 8.0,
    "pick up": 4.0,
    "give": 25.0,
    "jump": 1.5,
    "turn": 0.8,
}
ROLE_VERBS = ("chase", "go to", "give")  # of which doer and the other may change places
MOVERS = kinds_with("mover")
HANDED = kinds_with("handed")
SMALL = tuple(k for k in kinds_with("holdable") if k not in ("hat", "key"))
SCREENS = ("house", "tree", "basket", "table")
ATTEMPTS = 200
REPEATED, TOGETHER = 0.3, 0.2  # how often something happens twice, or two things at once
ALIKE = 0.4  # how often two movers are of one kind and differ in colour


def sample_story(dice: Dice, id: str) -> Story:
    """A story of two to four events."""
    for _ in range(ATTEMPTS):
        story = _happen(dice, _opening(dice, id), dice.weighted((2, 3, 4), (3, 4, 2)))
        if story is not None:
            return story
    raise AssertionError("no story came about")


def sample_twins(dice: Dice, ids: tuple[str, str]) -> tuple[Story, Story]:
    """Two stories with the same words: the order of two events, or two roles in one, tell them apart."""
    order = dice.chance(0.5)
    for _ in range(ATTEMPTS * 5):
        story = _happen(dice, _opening(dice, ids[0]), 2, plain=True)
        if story is None:
            continue
        made = list(_order_twins(story) if order else _role_twins(story))
        if made:
            twin = replace(dice.pick(made), id=ids[1], twin=ids[0])
            return replace(story, twin=ids[1]), twin
    raise AssertionError("no twins came about")


def _opening(dice: Dice, id: str) -> Story:
    """Who is there at first, each with a place of its own; some wait beside the stage."""
    first = dice.pick(HANDED) if dice.chance(0.6) else dice.pick(MOVERS)
    second = first if dice.chance(ALIKE) else dice.pick(HANDED if first in HANDED and dice.chance(0.6) else MOVERS)
    kinds = [first, second]
    kinds += [dice.pick(MOVERS)] if dice.chance(0.3) else []
    kinds += [dice.pick(SMALL)] if set(kinds) & set(HANDED) and dice.chance(0.75) else []
    kinds += [dice.pick(SCREENS)] if dice.chance(0.6) else [dice.pick(SMALL)]
    kinds = dice.shuffled(kinds[:5])
    colours = dice.shuffled(tuple(COLOURS))[: len(kinds)]
    places = dice.shuffled(range(len(kinds)))
    step = (1 - 2 * EDGE - 0.04) / max(len(kinds) - 1, 1)
    things = []
    for kind, colour, place in zip(kinds, colours, places, strict=True):
        size = "large" if kind in SCREENS else "small" if kind in SMALL else dice.pick(("medium", "medium", "large"))
        size = "small" if kind in ("duck", "cat", "dog") and dice.chance(0.4) else size
        depth = dice.between(0.3, 0.42) if kind in SCREENS else dice.between(0.05, 0.3)
        thing = Thing(kind, colour, size, dice.pick([m for m in MATERIALS if m != "glass"]), facing=dice.pick((-1, 1)))
        x = round(EDGE + 0.02 + step * place, 4)
        things.append(
            replace(thing, x=x, depth=depth, y=round(foot(depth), 4), height=round(drawn_height(thing, depth), 4))
        )
    weights: dict[str, float] = column("lightings", "weight")
    scene = Scene(
        id=id,
        things=tuple(things),
        background=dice.pick(BACKGROUNDS),
        lighting=dice.weighted(LIGHTINGS, [weights[name] for name in LIGHTINGS]),
        light_from=dice.pick((-1, 1)),
        horizon=dice.between(0.33, 0.38),
        seed=seed_of(id, dice.below(1 << 30)) % (1 << 31),
    )
    movers = [n for n, thing in enumerate(things) if thing.kind in MOVERS]
    waiting = frozenset(n for n in movers if dice.chance(0.3))
    if len(waiting) == len(movers):
        waiting = frozenset(list(waiting)[1:])
    holders = [n for n in movers if things[n].kind in HANDED and n not in waiting and things[n].size != "small"]
    small = [n for n, thing in enumerate(things) if thing.kind in SMALL]
    held = ((dice.pick(holders), dice.pick(small)),) if holders and small and dice.chance(0.45) else ()
    return Story(id, scene, (), 0.0, waiting, held)


def _happen(dice: Dice, story: Story, count: int, plain: bool = False) -> Story | None:
    """The story with so many events, or None where nothing fits; a plain one has none twice and none at once."""
    stage = Stage(story)
    if not _spaced(stage):
        return None
    while len(stage.events) < count:
        before = stage.events[-1] if stage.events else None
        options = [event for event in candidates(stage) if stage.possible(event)]
        options = [event for event in options if not any(_repeats(event, told) for told in stage.events)]
        if not options:
            return None
        verbs = sorted({event.verb for event in options})
        verb = dice.weighted(verbs, [WEIGHTS[v] for v in verbs])
        event = dice.pick([e for e in options if e.verb == verb])
        if event.verb == "turn":  # it is spoken of without its colour, then
            own = stage.actors[event.agent].thing.colour
            event = replace(event, value=dice.pick([c for c in COLOURS if c != own]))
        last = TICK * (4 + dice.below(5))
        together = before is not None and not plain and dice.chance(TOGETHER) and not before.things & event.things
        start = before.start if together and before is not None else stage.time + TICK * (1 + dice.below(3))
        stage.add(event, start, start + last)
    again = [e for e in stage.events[:-1] if e.verb == "jump"]
    if again and not plain and dice.chance(REPEATED) and stage.possible(again[0]):
        start = stage.time + TICK * (1 + dice.below(3))
        stage.add(again[0], start, start + TICK * (4 + dice.below(3)))
    return _ended(story, stage, dice.below(3))


def _repeats(event: Event, told: Event) -> bool:
    """Whether it says the same again, or undoes what was told: who has left does not come in again."""
    left = {event.verb, told.verb} == {"enter", "leave"} and event.agent == told.agent and event.verb == "enter"
    return left or event.meaning == told.meaning


def _ended(story: Story, stage: Stage, wait: int) -> Story:
    events = tuple(sorted(stage.events, key=lambda event: (event.start, event.end)))
    return replace(story, events=events, seconds=round(stage.time + TICK * (2 + wait), 2))


def _spaced(stage: Stage) -> bool:
    """Whether nobody stands in the place of another at first."""
    seen = [a for a in stage.actors if a.on_stage and a.holder is None]
    pairs = [(a, b) for n, a in enumerate(seen) for b in seen[:n]]
    return all(abs(a.thing.x - b.thing.x) > 0.85 * (a.half + b.half) for a, b in pairs) and len(seen) > 1


def candidates(stage: Stage) -> Iterator[Event]:
    """Everything that anybody might do; `Stage.possible` says what can."""
    numbers = range(len(stage.actors))
    alone = {n for n in numbers if sum(a.thing.kind == stage.actors[n].thing.kind for a in stage.actors) == 1}
    turned = {event.agent for event in stage.events if event.verb == "turn"}
    for n in numbers:
        for side in ("left", "right"):
            yield Event("enter", n, value=side)
            yield Event("leave", n, value=side)
        yield Event("jump", n)
        if n in alone and n not in turned:
            yield Event("turn", n, value="")
    for a, b in permutations(numbers, 2):
        yield Event("go to", a, goal=b)
        yield Event("hide", a, goal=b)
        yield Event("chase", a, b)
        yield Event("pick up", a, b)
        for side in ("left", "right"):
            yield Event("push", a, b, value=side)
    for what, actor in enumerate(stage.actors):
        if actor.holder is not None:
            yield from (Event("give", actor.holder, what, n) for n in numbers if n not in (what, actor.holder))


def _order_twins(story: Story) -> Iterator[Story]:
    """The two events in the other order, each as long as before, where both orders can happen."""
    first, second = story.events
    if first.things & second.things:
        return
    pause = second.start - first.end
    stage = Stage(replace(story, events=()))
    start = first.start
    for event in (second, first):
        if not stage.possible(event):
            return
        end = start + event.end - event.start
        stage.add(event, start, end)
        start = end + pause
    yield replace(story, events=tuple(stage.events))


def _role_twins(story: Story) -> Iterator[Story]:
    """One event with doer and the other exchanged; what follows must still be possible."""
    for place, event in enumerate(story.events):
        swapped = exchanged(event)
        if swapped is None:
            continue
        begun = story
        if event.verb == "give":
            if (event.agent, event.patient) not in story.held:
                continue
            begun = replace(story, held=((swapped.agent, event.patient or 0),))
        stage = Stage(replace(begun, events=()))
        if not _spaced(stage):
            continue
        for n, own in enumerate(story.events):
            told = swapped if n == place else own
            if not stage.possible(told):
                break
            stage.add(told, own.start, own.end)
        else:
            yield replace(begun, events=tuple(stage.events))


def exchanged(event: Event) -> Event | None:
    """The event with doer and the other exchanged: who chases is chased; None if there is no other."""
    if event.verb == "chase":
        assert event.patient is not None
        return replace(event, agent=event.patient, patient=event.agent)
    if event.verb in ("go to", "give"):
        assert event.goal is not None
        return replace(event, agent=event.goal, goal=event.agent)
    return None


def can_exchange(event: Event, scene: Scene) -> bool:
    """Whether the exchanged event is something that these things could do."""
    swapped = exchanged(event)
    return swapped is not None and "mover" in KINDS[scene.things[swapped.agent].kind].roles
