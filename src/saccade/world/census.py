"""Counting what a world holds."""

from __future__ import annotations

from collections import Counter

from saccade.world.store import World


def census(world: World) -> dict[str, Counter[str]]:
    """How often each kind, colour, … is shown, each predicate holds and each word is said, over all splits."""
    names = ("kinds", "colours", "sizes", "materials", "backgrounds", "relations", "words")
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for name in world.splits:
        split = world.split(name)
        for i in range(len(split)):
            scene = split.scene(i)
            for thing in scene.things:
                for key, value in zip(names, thing.identity, strict=False):
                    counts[key][value] += 1
            counts["backgrounds"][scene.background] += 1
            counts["relations"].update(r.predicate for r in scene.relations)
            for caption in split.captions(i):
                counts["words"].update(caption.text.replace(",", " ,").split())
    return counts
