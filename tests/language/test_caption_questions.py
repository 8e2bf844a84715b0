"""Questions that rules read off the captions of a photo, and how they are balanced."""

from __future__ import annotations

from collections import Counter

from saccade.language.caption_questions import CaptionQuestion, balanced, questions_of
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
