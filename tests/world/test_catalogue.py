"""The world is as rich as promised, and its compositions are held out as promised."""

from __future__ import annotations

from saccade.world.catalogue import COLOURS, KINDS, MATERIALS, PREDICATES, SIZES, possible
from saccade.world.grammar import (
    COLOUR_WORDS,
    MATERIAL_WORDS,
    NOUNS,
    PASSIVES,
    PREPOSITIONS,
    SIZE_WORDS,
    VERBS,
    article,
)
from saccade.world.render.picture import MODELS
from saccade.world.sample import HELD_OUT_ACTS, HELD_OUT_COLOURS, held_out_act, held_out_acts


def test_there_is_enough_of_everything() -> None:
    assert len(KINDS) >= 12
    assert len(COLOURS) >= 8
    assert len(SIZES) == 3
    assert len(MATERIALS) >= 3
    assert len(PREDICATES) >= 10


def test_everything_has_a_model_and_words() -> None:
    assert set(MODELS) == set(NOUNS) == set(KINDS)
    assert set(COLOUR_WORDS) == set(COLOURS)
    assert set(MATERIAL_WORDS) == set(MATERIALS)
    assert set(SIZE_WORDS) == set(SIZES)
    assert set(PREPOSITIONS) | set(VERBS) == set(PREDICATES)
    assert set(PASSIVES) == set(VERBS)


def test_no_word_means_two_things() -> None:
    tables = (NOUNS, COLOUR_WORDS, MATERIAL_WORDS, SIZE_WORDS)
    words = [word for table in tables for options in table.values() for word in options]
    assert len(words) == len(set(words))


def test_every_part_of_a_held_out_composition_is_seen_elsewhere() -> None:
    for colour, kind in HELD_OUT_COLOURS:
        assert any((other, kind) not in HELD_OUT_COLOURS for other in COLOURS)
        assert any((colour, other) not in HELD_OUT_COLOURS for other in KINDS)
    for subject, predicate, thing in held_out_acts():
        assert any(possible(subject, predicate, k) and not held_out_act(subject, predicate, k) for k in KINDS)
        assert any(possible(k, predicate, thing) and not held_out_act(k, predicate, thing) for k in KINDS)
    assert {predicate for _, predicate, _ in held_out_acts()} == set(HELD_OUT_ACTS)


def test_articles() -> None:
    assert [article(w) for w in ("orange", "automobile", "huge", "cube")] == ["an", "an", "a", "a"]
