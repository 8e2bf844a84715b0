"""Twins: two scenes alike in everything but one binding, and captions of each that are false of the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from saccade.world.captions import SWAPS, Focus, caption_of, draw_plan, rebind
from saccade.world.catalogue import possible
from saccade.world.dice import Dice
from saccade.world.grammar import realise
from saccade.world.layout import fits, relate, settle
from saccade.world.sample import ACT_SIZES, Wish, is_novel, sample_scene
from saccade.world.scene import Caption, Relation, Scene, Thing

SWAP_WEIGHTS = (4, 2, 2, 3, 4)  # of captions.SWAPS


def acts_of(scene: Scene) -> tuple[Relation, ...]:
    """The relations that put things where they are, without those that follow from them."""
    implied = {(r.subject, r.object) for r in scene.relations if r.predicate == "riding"}
    implied |= {(r.object, r.subject) for r in scene.relations if r.predicate == "wearing"}
    return tuple(
        r
        for r in scene.relations
        if r.predicate in ACT_SIZES and not (r.predicate == "on" and (r.subject, r.object) in implied)
    )


def twin_pair(
    dice: Dice, names: tuple[str, str], captions: int, hidden: float
) -> tuple[tuple[Scene, tuple[Caption, ...]], tuple[Scene, tuple[Caption, ...]]]:
    """Two scenes, each with `captions` sentences true of it and false of the other, the same words in both."""
    while True:
        scene = sample_scene(dice, names[0], Wish(least=2, most=6, hidden=hidden))
        for _ in range(4):
            found = make_twin(scene, dice, names[1], hidden)
            if found is None:
                continue
            twin, focus = found
            pairs = _paired_captions(scene, twin, focus, dice, captions)
            if len(pairs) == captions:
                one = replace(scene, twin=names[1]), tuple(a for a, _ in pairs)
                return one, (twin, tuple(b for _, b in pairs))


def make_twin(scene: Scene, dice: Dice, name: str, hidden: float) -> tuple[Scene, Focus] | None:
    """Exchange attributes of two things, or their places, if the result is an ordinary scene."""
    swap = dice.weighted(SWAPS, SWAP_WEIGHTS)
    acts = acts_of(scene)
    count = len(scene.things)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    for i, j in dice.shuffled(pairs):
        a, b = scene.things[i], scene.things[j]
        if any(getattr(a, name) == getattr(b, name) for name in swap[:1]):
            continue
        if swap == ("material",) and (scene.lighting == "night" or "small" in (a.size, b.size)):
            continue  # too little to see it by
        things = rebind(scene.things, i, j, swap)
        if is_novel(things, acts) or not all(_suits(act, things) for act in acts):
            continue
        placed = settle(things, acts)
        if fits(placed, acts, hidden):
            twin = replace(scene, id=name, things=placed, relations=relate(placed, acts), twin=scene.id)
            return twin, Focus(i, j, swap)
    return None


def _suits(act: Relation, things: Sequence[Thing]) -> bool:
    a, b = things[act.subject], things[act.object]
    first, second = ACT_SIZES[act.predicate]
    if act.predicate in ("inside", "wearing") and a.size == b.size:
        return False
    if act.predicate == "wearing" and {a.size, b.size} == {"small", "large"}:
        return False
    return possible(a.kind, act.predicate, b.kind) and a.size in first and b.size in second


def _paired_captions(scene: Scene, twin: Scene, focus: Focus, dice: Dice, count: int) -> list[tuple[Caption, Caption]]:
    """Plans that read differently on the two scenes, in the same words, each true of its own scene only."""
    here, there = frozenset(scene.relations), frozenset(twin.relations)
    pairs: list[tuple[Caption, Caption]] = []
    texts: set[str] = set()
    for attempt in range(30 * count):
        if len(pairs) == count or (attempt > 10 * count and not pairs):
            break
        plan = draw_plan(scene, dice, focus)
        one, other = realise(plan, scene.things, scene), realise(plan, twin.things, twin)
        if (
            {one.text, other.text} & texts
            or one.words == other.words
            or Counter(one.words) != Counter(other.words)
            or not one.meaning.holds(scene.things, here)
            or one.meaning.holds(twin.things, there)
            or not other.meaning.holds(twin.things, there)
            or other.meaning.holds(scene.things, here)
        ):
            continue
        texts |= {one.text, other.text}
        pairs.append((caption_of(one, other.text), caption_of(other, one.text)))
    return pairs
