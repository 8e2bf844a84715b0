"""Nouns and adjectives of phrases, as people write them of photos."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.language.caption_words import ADJECTIVES, SPELLINGS, UNSAID_WORDS, singular
from saccade.language.phrases import NounPhrase, chain_name, read_phrase


@pytest.mark.parametrize(
    ("phrase", "name", "attributes"),
    [
        ("a set of stairs", "stairs", ()),
        ("two young men", "man", ("young",)),
        ("a brown and white dog", "dog", ("brown", "white")),
        ("a black , tan and white dog", "dog", ("black", "tan", "white")),
        ("a black-and-white cat", "cat", ("black", "white")),
        ("a white and a brown dog", "dog", ("white", "brown")),
        ("a group of people", "person", ()),
        ("the side of a brick building", "building", ("brick",)),
        ("a glass of water", "glass", ()),
        ("Two dogs of different breeds", "dog", ()),
        ("a light blue shirt", "shirt", ("blue",)),  # a shade belongs to the colour after it
        ("a bright orange shirt", "shirt", ("orange",)),
        ("an orange", "orange", ()),
        ("orange", None, ("orange",)),
        ("some wood", "wood", ()),
        ("a wood fence", "fence", ("wooden",)),
        ("the woman 's red hat", "hat", ("red",)),
        ("the old woman's hat", "hat", ()),  # the woman is old, not the hat
        ("his mouth open", "mouth", ("open",)),
        ("a trampoline outside", "trampoline", ()),
        ("blond-hair", "hair", ("blond",)),
        ("a person in a red jacket", "person", ()),
        ("a blue bathing suit", "swimsuit", ("blue",)),
        ("2 grey horses", "horse", ("gray",)),
        ("a wooded area", "area", ("wooded",)),
        ("a couple", "person", ()),
        ("each other", None, ()),
        ("a man and a woman", None, ()),
        ("a black dog and a white dog", "dog", ()),  # two dogs, and which is which cannot be told
        ("no shirt", None, ()),
        ("all black", None, ("black",)),
        ("an asian man", "man", ()),  # nobody is taught to call people that
        ("", None, ()),
    ],
)
def test_the_thing_and_what_is_said_of_it(phrase: str, name: str | None, attributes: tuple[str, ...]) -> None:
    assert read_phrase(phrase.split()) == NounPhrase(name, attributes)


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        ("dogs", "dog"),
        ("children", "child"),
        ("people", "person"),
        ("puppies", "puppy"),
        ("ties", "tie"),
        ("benches", "bench"),
        ("horses", "horse"),
        ("shoes", "shoe"),
        ("heroes", "hero"),
        ("leaves", "leaf"),
        ("dresses", "dress"),
        ("boxes", "box"),
        ("glasses", "glasses"),
        ("grass", "grass"),
        ("bus", "bus"),
        ("sheep", "sheep"),
        ("firemen", "fireman"),
    ],
)
def test_singular_forms(plural: str, one: str) -> None:
    assert singular(plural) == one
    assert singular(one) == one


def test_a_chain_is_called_what_most_call_it_and_keeps_all_that_is_said() -> None:
    phrases = [read_phrase(p.split()) for p in ("it", "a wet puppy", "the brown dog", "a small dog", "a brown dog")]
    assert chain_name(phrases) == NounPhrase("dog", ("wet", "brown", "small"))
    assert chain_name([read_phrase(["it"]), read_phrase(["others"])]) is None


def test_every_spelling_leads_to_a_known_adjective() -> None:
    unknown = {right for right in SPELLINGS.values() if right not in ADJECTIVES}
    assert unknown == {"colored"}  # "a coloured ball" has no colour
    assert not {wrong for wrong in SPELLINGS if SPELLINGS[wrong] in SPELLINGS and SPELLINGS[wrong] != wrong} - {"camo"}
    assert UNSAID_WORDS < ADJECTIVES


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_words_are_read_and_attributes_are_known(words: list[str]) -> None:
    phrase = read_phrase(words)
    assert set(phrase.attributes) <= ADJECTIVES - UNSAID_WORDS
    assert phrase.name is None or phrase.name == phrase.name.lower()
