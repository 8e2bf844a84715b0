"""Parses are trees over our own tokens; things, attributes and relations are read off them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.language import Parse, Vocabulary, load_parser, tokenise
from saccade.language.caption_words import lexicon

RULES = load_parser("rules")
CAPTIONS = (
    "A brown dog in front of a wooden fence chases two cats .",
    "Two men in hats stand next to each other while a girl watches .",
    "A woman wearing a \"red\" t-shirt isn't holding her dog's leash , but he runs",
    "Playing in the snow",
    "There are people that a dog is looking at .",
)


def check_tree(parse: Parse) -> None:
    """One root, every word leads to it, and all four columns are as long as the tokens."""
    count = len(parse.tokens)
    assert len(parse.heads) == len(parse.labels) == len(parse.tags) == count
    assert list(parse.heads).count(-1) == min(count, 1)
    for place in range(count):
        for _ in range(count):
            place = parse.heads[place] if place >= 0 else -1
        assert place == -1, parse


def things(text: str) -> list[str]:
    return [" ".join(o.words) for o in RULES.parse([text])[0].objects]


def attributes(text: str) -> set[tuple[str, str]]:
    return {(a.object.name, a.word) for a in RULES.parse([text])[0].attributes}


def relations(text: str) -> set[tuple[str, str, str]]:
    found = RULES.parse([text])[0].relations
    return {(r.subject.name, " ".join(r.predicate), r.object.name) for r in found}


@pytest.mark.parametrize("text", CAPTIONS)
def test_tokens_are_those_of_the_tokeniser_and_links_those_of_a_text_batch(text: str) -> None:
    parse = RULES.parse([text])[0]
    check_tree(parse)
    assert list(parse.tokens) == tokenise(text)
    _, words = Vocabulary.build([text], min_count=1).encode(text)
    assert len(parse.links) == len(parse.tokens) - 1  # all but the root
    for head, place in parse.links:
        assert 1 <= head < len(words) - 1
        assert words[place] == parse.tokens[place - 1]
        assert parse.heads[place - 1] == head - 1


WORDS = sorted(lexicon())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, "dog", "men", "zorbs", ".", ",", "and", "of", "that", "is", "a"]), max_size=14)
)
def test_any_words_at_all_make_a_tree(words: list[str]) -> None:
    parse = RULES.parse([" ".join(words)])[0]
    check_tree(parse)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_at_all_makes_a_tree(text: str) -> None:
    check_tree(RULES.parse([text])[0])


def test_things_are_noun_phrases_with_their_words() -> None:
    assert things("A black and white dog jumps over a fence") == ["a black and white dog", "a fence"]
    assert things("the man 's red hat is on a table") == ["the man", "the man 's red hat", "a table"]
    assert things("a group of people with no shoes") == ["a group of people"]
    assert things("a picture of two dogs") == ["two dogs"]
    assert things("it chases them") == []


def test_attributes_stand_before_after_and_behind_is() -> None:
    assert attributes("a big red ball and a glass cup") == {("ball", "big"), ("ball", "red"), ("cup", "glass")}
    assert attributes("the ball is red and small") == {("ball", "red"), ("ball", "small")}
    assert attributes("the ball that is near a white cat is made of wood") == {("ball", "wood"), ("cat", "white")}


def test_relations_of_verbs_prepositions_and_passives() -> None:
    assert relations("a dog bites a cat") == {("dog", "bites", "cat")}
    assert relations("a cat is being chased by a dog") == {("cat", "chased by", "dog")}
    assert relations("a ball on top of a box left of a lamp") >= {("ball", "on top of", "box")}
    assert relations("two men and a woman hold a rope") == {("men", "hold", "rope"), ("woman", "hold", "rope")}
    assert relations("behind the house there is a car") == {("car", "behind", "house")}
    assert relations("a boy holding a stick jumps over a puddle and a log") == {
        ("boy", "holding", "stick"),
        ("boy", "jumps over", "puddle"),
        ("boy", "jumps over", "log"),
    }
    assert relations("a baby that the woman is holding") == {("woman", "holding", "baby")}


def test_only_passives_are_marked_as_such() -> None:
    found = RULES.parse(["a hat worn by a dog , standing by a tree"])[0].relations
    assert [(" ".join(r.predicate), r.passive) for r in found] == [("worn by", True), ("standing by", False)]


def test_a_sentence_parsed_again_is_the_same_and_not_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = load_parser("rules")
    first = parser.parse(["a dog runs", "a dog runs", ""])
    monkeypatch.setattr(parser, "_parse", None)  # would fail if asked
    assert parser.parse(["A dog runs"])[0] is first[0] is first[1]
    assert first[2].tokens == ()


def test_a_parser_forgets_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.language.parsing.parser.MAX_REMEMBERED_CAPTIONS", 10)
    parser = load_parser("rules")
    for n in range(40):
        assert len(parser.parse([f"{n} dogs run", "a cat"])) == 2
    assert len(parser._known) <= 11


def test_unknown_names_are_answered() -> None:
    for name in ("rulse", "file:", "", "corenlp"):
        with pytest.raises(SaccadeError, match="there is no parser"):
            load_parser(name)


def test_scene_graphs_as_json_name_things_by_number() -> None:
    value = RULES.parse(["a red ball is held by a dog"])[0].graph.to_json()
    assert value["objects"][0] == {"name": "ball", "phrase": "a red ball", "place": 2, "attributes": ["red"]}
    assert value["relations"] == [[0, "held by", 1, "passive"]]
