"""Questions that rules read off the captions of a photo, and how they are balanced."""

from __future__ import annotations

from collections import Counter

from saccade.language.caption_questions import CaptionQuestion, balanced, phrased, questions_of
from saccade.language.parsing import shared_parser

DOG = (
    "A brown dog is running through the snow .",
    "A brown dog runs in the snow .",
    "The dog is running in deep snow .",
)


def asked(*captions: str) -> dict[str, str]:
    return {question.text: question.answer for question in questions_of(shared_parser().parse(captions))}


def test_what_captions_agree_on_is_asked() -> None:
    found = asked(*DOG)
    assert found["is there a dog?"] == "yes"
    assert found["is there a horse?"] == "no"
    assert found["how many dogs are there?"] == "1"
    assert found["what colour is the dog?"] == "brown"
    assert found["what is the dog doing?"] == "running"
    assert found["where is the dog?"] == "snow"


def test_what_people_wear_is_asked_and_several_are_counted() -> None:
    man = "A man wearing a red hat sits on a bench .", "A man in a hat is sitting on a bench ."
    assert asked(*man)["what is the man wearing?"] == "hat"
    assert asked("Two dogs play .", "Two black dogs run together .")["how many dogs are there?"] == "2"


def test_animals_sports_and_people_are_asked_by_kind() -> None:
    assert asked(*DOG)["what animal is there?"] == "dog"
    assert asked(*DOG)["who is there?"] == "nobody"
    played = asked("Two men play soccer .", "Soccer players run .", "Men fight for a soccer ball .")
    assert (played["what sport is it?"], played["who is there?"]) == ("soccer", "several people")
    assert "what animal is there?" not in played
    assert asked("A man jumps .", "The man is jumping .")["who is there?"] == "man"
    fetched = asked("A dog carries a tennis ball .", "The dog holds a tennis ball .", "A cat looks at a dog .")
    assert not fetched.keys() & {"what sport is it?", "what animal is there?"}  # a ball is no game; and there are two


def test_what_is_ridden_held_and_played_is_asked() -> None:
    assert asked("A man rides a bike .", "A man riding his bicycle .")["what is the man riding?"] == "bicycle"
    assert asked("A dog carries a stick .", "The dog is holding a branch .")["what is the dog holding?"] == "stick"
    several = asked("Two boys play soccer .", "Boys playing soccer .", "Two boys are running .")
    assert several["what are the boys playing?"] == "soccer"


def test_what_is_so_and_what_is_not_can_be_asked() -> None:
    found = asked(*DOG)
    told = {"is the dog running?": "yes", "is the dog brown?": "yes", "is the dog in the snow?": "yes"}
    assert {**found, **told} == found
    assert [found[f"is the dog {other}?"] for other in ("sitting", "black", "on the beach")] == ["no"] * 3
    unclear = asked("A dog runs .", "The dog is running .", "A dog sits .")
    assert unclear["is the dog running?"] == "yes"
    assert "is the dog sitting?" not in unclear  # one caption has it so


def test_every_other_question_is_asked_in_other_words() -> None:
    question = CaptionQuestion("colour", "what colour is the ball?", "red")
    texts = Counter(phrased(f"photo {n}", question).text for n in range(400))
    assert 150 < texts["what colour is the ball?"] < 250
    assert {"what color is the ball?", "what is the color of the ball?"} < texts.keys()
    assert phrased("p", question) == phrased("p", question)
    plain = CaptionQuestion("is", "is the dog running?", "yes")
    assert {phrased(f"photo {n}", plain) for n in range(20)} == {plain}


def test_what_captions_contradict_is_not_asked() -> None:
    found = asked("A brown dog runs .", "A black dog sits .", "Two dogs are outside .")
    assert not found.keys() & {"what colour is the dog?", "what is the dog doing?", "how many dogs are there?"}


def test_nothing_is_absent_that_a_caption_may_mean() -> None:
    found = asked("An animal stands in a field .", "A person is on a field .")
    assert not found.keys() & {"is there a dog?", "is there a horse?", "is there a man?", "is there a girl?"}
    assert found["is there a boat?"] == "no"


def test_balanced_answers_tell_nothing() -> None:
    text = "is there a dog?"
    rows = [(f"p{n}", CaptionQuestion("exist", text, "yes" if n < 5 else "no")) for n in range(40)]
    rows += [(f"p{n}", CaptionQuestion("count", "how many cats are there?", "1")) for n in range(40)]
    kept = list(balanced(rows))
    assert Counter(question.answer for _, question in kept) == {"yes": 5, "no": 5}  # and no text with one answer alone
    assert kept == sorted(kept, key=rows.index)
    assert set(balanced(reversed(rows))) == set(kept)
