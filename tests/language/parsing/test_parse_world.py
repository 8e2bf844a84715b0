"""The rule parser reads the world's own captions as they were meant.

What "perfectly" means here, for every caption:

- *things*: each phrase of the caption that has a noun is one object: its noun is the phrase's noun and its words begin
  where the phrase begins. There are no other objects, but for the place and the light ("on the beach at noon") and the
  words for the picture itself ("the photo shows …", "an empty scene");
- *attributes*: of each thing, the words for colour, size and material that the caption's phrases of it hold are its
  attributes, whether they stand before the noun, after "made of" or after "is", and it has no others;
- *relations*: between things, exactly those the caption states. The lexicon says which wordings mean the same, and a
  passive is turned round; the parser knows of neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

import pytest

from saccade.language import Parse, load_parser
from saccade.world import Scene, SceneCaption
from saccade.world.captions import caption_scene, twin_pair
from saccade.world.catalogue import MATERIALS
from saccade.world.dice import Dice
from saccade.world.grammar import (
    COLOUR_WORDS,
    LIGHTS,
    MATERIAL_WORDS,
    NOUNS,
    PASSIVES,
    PLACES,
    PREPOSITIONS,
    SIZE_WORDS,
    VERBS,
    plural,
)
from saccade.world.sample import Wish, sample_scene

SEEDS = (0, 1, 2)
NAMES = {form for words in NOUNS.values() for word in words for form in (word, plural(word))}
SAID = {w for table in (COLOUR_WORDS, SIZE_WORDS, MATERIAL_WORDS) for words in table.values() for w in words} | {
    *MATERIALS
}
PREDICATE = {words: name for name, wordings in PREPOSITIONS.items() for words in wordings} | {
    wording: name for name, verbs in VERBS.items() for pair in verbs for wording in pair
}
PASSIVE = {words: name for name, wordings in PASSIVES.items() for words in wordings}
SETTINGS = {word for table in (PLACES, LIGHTS) for wordings in table.values() for w in wordings for word in w.split()}
PICTURE = {"picture", "photo", "image", "scene", "toy", "toys"}


@cache
def told(seed: int) -> list[tuple[Scene, SceneCaption]]:
    """Captions of ordinary, novel and twin scenes, as a world of this seed has them; none is painted."""
    scenes = [sample_scene(Dice(seed, "train", n), f"s{n}", Wish()) for n in range(130)]
    scenes += [sample_scene(Dice(seed, "novel", n), f"n{n}", Wish(least=1, most=6, novel=True)) for n in range(40)]
    found = [(s, c) for n, s in enumerate(scenes) for c in caption_scene(s, Dice(seed, "words", n), 5)]
    for n in range(30):
        pair = twin_pair(Dice(seed, "hard", n), (f"a{n}", f"b{n}"), 5, hidden=0.12)
        found += [(scene, caption) for scene, captions in pair for caption in captions]
    return found


def things_of(caption: SceneCaption, parse: Parse) -> dict[int, tuple[int, ...]]:
    """The place of each object's noun → the things its phrase speaks of; all that is asked of things is asked here."""
    meant = {}
    objects = {o.place: o for o in parse.objects}
    for phrase in caption.phrases:
        nouns = [p for p in range(phrase.start, phrase.end) if parse.tokens[p] in NAMES]
        nouns = [p for p in nouns if p + 1 == phrase.end or parse.tokens[p + 1] == "made"]  # "a light car", "red"
        for noun in nouns:
            assert noun in objects, f"{caption.text}: {parse.tokens[noun]} is no object"
            assert objects[noun].start == phrase.start, f"{caption.text}: {objects[noun].words}"
            meant[noun] = phrase.things
    for place, thing in objects.items():
        if place not in meant:
            assert thing.name in SETTINGS | PICTURE, f"{caption.text}: {thing.name} is an object"
    return meant


@pytest.mark.parametrize("seed", SEEDS)
def test_things_are_the_mentions(seed: int) -> None:
    parses = load_parser("rules").parse([caption.text for _, caption in told(seed)])
    for (_, caption), parse in zip(told(seed), parses, strict=True):
        things_of(caption, parse)


@pytest.mark.parametrize("seed", SEEDS)
def test_attributes_are_those_said(seed: int) -> None:
    parses = load_parser("rules").parse([caption.text for _, caption in told(seed)])
    count = 0
    for (_, caption), parse in zip(told(seed), parses, strict=True):
        meant = things_of(caption, parse)
        said: dict[tuple[int, ...], Counter[str]] = defaultdict(Counter)
        for phrase in caption.phrases:
            words = [parse.tokens[p] for p in range(phrase.start, phrase.end) if p not in meant]
            said[phrase.things] += Counter(w for w in words if w in SAID)
        read: dict[tuple[int, ...], Counter[str]] = defaultdict(Counter)
        for attribute in parse.attributes:
            if attribute.object.place in meant:
                read[meant[attribute.object.place]][attribute.word] += 1
        assert {k: v for k, v in read.items() if v} == {k: v for k, v in said.items() if v}, caption.text
        count += sum(map(len, said.values()))
    assert count > 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_relations_are_those_stated(seed: int) -> None:
    parses = load_parser("rules").parse([caption.text for _, caption in told(seed)])
    count = 0
    for (_, caption), parse in zip(told(seed), parses, strict=True):
        meant = things_of(caption, parse)
        read = set()
        for relation in parse.relations:
            subject, object_ = meant.get(relation.subject.place), meant.get(relation.object.place)
            if subject is None or object_ is None:  # a place, or the picture
                continue
            wording = " ".join(relation.predicate)
            if wording in PASSIVE:
                assert relation.passive, caption.text
                read.add((object_[0], PASSIVE[wording], subject[0]))
            else:
                assert wording in PREDICATE, f"{caption.text}: {wording}"
                assert not relation.passive, caption.text
                read.add((subject[0], PREDICATE[wording], object_[0]))
        assert read == {(r.subject, r.predicate, r.object) for r in caption.relations}, caption.text
        count += len(read)
    assert count > 500
