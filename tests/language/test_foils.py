"""Foils: false, grammatical, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from saccade.language.foils import FOIL_KINDS, Foil, FoilKind, NounKinds, make_foils

TYPES = {
    "people": "a man,a woman,a boy,a girl,two men,two women,a person,a guy",
    "animals": "a dog,a cat,a horse,an elephant,two dogs,two cats,two horses",
    "clothing": "a hat,a shirt,a red umbrella,a scarf",
    "other": "a ball,a bench,an orange,a table,a piano",
    "scene": "a street,the snow,the water,the grass,the sand",
}
PHRASES = [(phrase.split(), kind) for kind, listed in TYPES.items() for phrase in listed.split(",")] * 3
KINDS = NounKinds.of(PHRASES)


def foil(kind: FoilKind, *captions: str) -> str | None:
    """The foil of the first caption."""
    made = {one.kind: one.text for one in make_foils(captions, KINDS, [kind])[0]}
    return made.get(kind)


@pytest.mark.parametrize(
    ("kind", "caption", "expected"),
    [
        ("nouns", "A girl in a hat rides a horse .", "a horse in a hat rides a girl ."),
        ("nouns", "A small dog follows an elephant .", "a small elephant follows a dog ."),
        ("adjectives", "A black dog and a white cat .", "a white dog and a black cat ."),
        ("adjectives", "A dog with a blue hat on an orange bench .", "a dog with an orange hat on a blue bench ."),
        ("sides", "A brown dog chases a small cat .", "a small cat chases a brown dog ."),
    ],
)
def test_words_change_places(kind: FoilKind, caption: str, expected: str) -> None:
    assert foil(kind, caption) == expected


@pytest.mark.parametrize(
    ("kind", "caption"),
    [
        ("nouns", "a man and a woman walk"),  # coordinated
        ("nouns", "a man beside a woman"),  # symmetric
        ("nouns", "a man chases a guy"),  # who may be called either
        ("nouns", "a dog chases two cats"),  # number
        ("nouns", "a man in a hat"),  # nobody is worn
        ("sides", "a brown dog near a small cat"),
        ("sides", "a man walks with his dog"),
        ("adjectives", "a black dog and a white dog"),  # the same again
        ("adjectives", "a black dog chases a white dog"),
        ("adjectives", "a black dog and white dogs on the grass"),
        ("adjectives", "a blue boat and orange boat float among lilypads"),
        ("adjectives", "a black and white dog with a red hat"),
        ("adjectives", "a golden dog on a yellow bench"),  # said of the same colour
        ("adjectives", "a white man on a black bench"),
        ("adjectives", "a man sees a white dog and the cat is black"),  # said behind it
    ],
)
def test_what_may_still_be_true_is_left_out(kind: FoilKind, caption: str) -> None:
    assert foil(kind, caption) is None


def test_nothing_that_another_caption_says_is_made() -> None:
    captions = "a black dog on a white bench", "a white dog"
    assert foil("adjectives", captions[0]) is not None
    assert foil("adjectives", *captions) is None


def test_a_replacement_is_of_the_same_kind_and_in_no_caption() -> None:
    animals = {"cat", "horse", "elephant"}
    for other in sorted(animals):
        made = foil("replaced", "a dog in the snow", f"there is a {other} too")
        assert made is not None
        article, noun, *rest = made.split()
        assert noun in animals - {other} or rest != ["in", "the", "snow"]
        assert article == ("an" if noun == "elephant" else "a")


def test_a_person_is_replaced_by_the_other_sex_only() -> None:
    made = {text for seed in range(20) for text in replaced("a man sleeps", seed=seed)}
    assert made == {"a woman sleeps", "a girl sleeps"}
    assert replaced("a man sleeps", "a person and a woman") == set()


def replaced(*captions: str, seed: int = 0) -> set[str]:
    return {one.text for one in make_foils(captions, KINDS, ["replaced"], seed)[0]}


def test_words_at_either_end_may_move() -> None:
    assert replaced("dog running") <= {f"{noun} running" for noun in ("cat", "horse", "elephant")}
    assert replaced("dog running")
    assert replaced("there is a dog")


def test_what_is_not_there_is_not_replaced() -> None:
    assert replaced("he is without a hat") == set()


def every(captions: Sequence[str], seed: int) -> list[list[Foil]]:
    return make_foils(captions, KINDS, FOIL_KINDS, seed)


def test_the_same_seed_gives_the_same_foils() -> None:
    captions = [f"a {a} dog chases a {b} cat in the snow" for a, b in (("black", "white"), ("brown", "gray"))]
    assert every(captions, 3) == every(captions, 3)
    assert len({str(every(captions, seed)) for seed in range(6)}) > 1
    for made in every(captions, 0):
        assert [one.kind for one in made] == list(FOIL_KINDS)
        for one in made:
            assert one.text != one.true
            assert (one.kind == "replaced") != (sorted(one.text.split()) == sorted(one.true.split()))


def test_nouns_are_counted_as_their_phrases_have_them() -> None:
    assert (KINDS.forms["dog"], KINDS.forms["dogs"], KINDS.forms["snow"]) == ("one", "many", "mass")
    assert KINDS.types["women"] == "people"
    assert "rare" not in NounKinds.of([(["a", "rare"], "other")]).types
