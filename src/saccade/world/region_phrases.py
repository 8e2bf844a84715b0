"""What could be said of one thing alone: "a large red metal cube", "a blue ball left of a cone".

A picture's captions speak of several things; a dense captioner learns from phrases that each belong to one box. They
are drawn from the scene graph, and so are true: every attribute is the thing's own, every relation one of the scene's.
"""

from __future__ import annotations

from saccade.world.catalogue import ACTS
from saccade.world.dice import Dice
from saccade.world.lexicon import (
    COLOUR_WORDS,
    MATERIAL_WORDS,
    NOUNS,
    PASSIVES,
    PREPOSITIONS,
    SIZE_WORDS,
    VERBS,
    article,
    word_for,
)
from saccade.world.scene import Relation, Scene, Thing

RELATED = 0.35  # of the phrases say where the thing is or what it does
ATTEMPTS = 8  # draws for each phrase wanted: a bare thing has few names


def region_phrases(scene: Scene, thing: int, count: int = 3) -> tuple[str, ...]:
    """At most `count` different phrases, at least one; the same for the same scene, on every machine."""
    dice = Dice("phrases", scene.id, scene.seed, thing)
    phrases: dict[str, None] = {}
    for _ in range(ATTEMPTS * count):
        phrases[_phrase(scene, thing, dice)] = None
        if len(phrases) == count:
            break
    return tuple(phrases)


def _phrase(scene: Scene, thing: int, dice: Dice) -> str:
    speaker = dice.below(1 << 30)
    said = _noun_phrase(scene.things[thing], speaker, dice, ("colour", 0.85), ("size", 0.3), ("material", 0.4))
    relations = [r for r in scene.relations if r.subject == thing or (r.object == thing and r.predicate in PASSIVES)]
    if not relations or not dice.chance(RELATED):
        return said
    doing = [
        r for r in relations if r.predicate in ACTS
    ]  # what is seen inside the box itself, before what is beside it
    relation = dice.pick(doing if doing and dice.chance(0.7) else relations)
    other = relation.object if relation.subject == thing else relation.subject
    return (
        f"{said} {_tie(relation, thing, speaker)} {_noun_phrase(scene.things[other], speaker, dice, ('colour', 0.5))}"
    )


def _noun_phrase(thing: Thing, speaker: int, dice: Dice, *chances: tuple[str, float]) -> str:
    """The thing's noun with some of its attributes, sizes first: "a small yellow wooden horse"."""
    said = {name for name, chance in chances if dice.chance(chance)}
    if thing.size == "medium" and dice.chance(0.8):  # what is of ordinary size is seldom said to be
        said.discard("size")
    tables = (("size", SIZE_WORDS), ("colour", COLOUR_WORDS), ("material", MATERIAL_WORDS))
    words = [
        word_for(getattr(thing, name), table[getattr(thing, name)], speaker) for name, table in tables if name in said
    ]
    words.append(word_for(thing.kind, NOUNS[thing.kind], speaker))
    return " ".join([article(words[0]), *words])


def _tie(relation: Relation, thing: int, speaker: int) -> str:
    """The relation as it follows the thing's noun: "left of", "chasing", or "chased by" where the thing suffers it."""
    if relation.subject != thing:
        return word_for(relation.predicate, PASSIVES[relation.predicate], speaker)
    if relation.predicate in PREPOSITIONS:
        return word_for(relation.predicate, PREPOSITIONS[relation.predicate], speaker)
    verbs = VERBS[relation.predicate]
    return verbs[speaker % len(verbs)][1]
