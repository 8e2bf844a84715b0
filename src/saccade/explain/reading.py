"""How a reader takes in an alignment: which words carry content, which look at the same place, in which colour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from saccade.explain.draw import PALETTE, Colour
from saccade.explain.explanation import Explanation

# Words that hold a sentence together but show nothing by themselves. Words of place that a picture can show (left,
# behind, above …) are content.
_FUNCTION = (
    "a an the this that these those some any each every its it he she they his her their there here and or but nor as "
    "of to in on at by with from for into onto is are was were be been being am has have had do does did can could "
    "will would who whom which what while where when than then so not no "
    "i you we me us my your our see seen image photo shows n't 's 'm 'd 'll 're 've"
)
FUNCTION_WORDS = frozenset(_FUNCTION.split())
SAME_PLACE = 0.5  # two boxes that overlap this much (intersection over union) are one place to the extractor


@dataclass(frozen=True)
class Place:
    """A part of the picture, and the content words whose strongest region lies there."""

    box: Float[Array, " 4"]
    region: int  # the one with this box
    words: tuple[int, ...]
    strength: float  # the largest share of its attention that one of the words gives to this box
    colour: Colour


def is_content(word: str) -> bool:
    """Does the word name something a picture can show?"""
    return any(c.isalnum() for c in word) and word.lower() not in FUNCTION_WORDS


def overlap(one: Float[Array, " 4"], other: Float[Array, " 4"]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    union = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - shared
    return float(shared / union) if union > 0 else float(np.array_equal(one, other))


def find_places(explanation: Explanation) -> tuple[Place, ...]:
    """The places the content words look at, in the order of the sentence.

    Words get one colour when their strongest boxes are the same place. So "red" and "cube" share a colour exactly when
    the model bound them to one object, which is what a reader wants to check.
    """
    share = shares(explanation.weights)
    found: list[tuple[int, list[int], float]] = []  # region, words, strength
    # The surest word names the place; vaguer words then join it.
    for word in sorted(range(len(explanation.words)), key=lambda i: -float(share[i].max(initial=0.0))):
        if not is_content(explanation.words[word]) or not chooses(share[word]):
            continue
        region = int(share[word].argmax())
        box = explanation.boxes[region]
        home = max(found, key=lambda place: overlap(explanation.boxes[place[0]], box), default=None)
        if home is not None and overlap(explanation.boxes[home[0]], box) >= SAME_PLACE:
            home[1].append(word)
        else:
            found.append((region, [word], float(share[word, region])))
    kept = sorted(found, key=lambda place: (-len(place[1]), -place[2]))[: len(PALETTE)]
    kept.sort(key=lambda place: min(place[1]))
    return tuple(
        Place(explanation.boxes[region], region, tuple(sorted(words)), strength, colour)
        for (region, words, strength), colour in zip(kept, PALETTE, strict=False)
    )


def chooses(share: Float[Array, " region"]) -> bool:
    """Whether a word attends to some regions more than to others; one region alone is always chosen."""
    largest = float(share.max(initial=0.0))
    return largest > 0 and (len(share) == 1 or float(share.min()) < largest * (1 - 1e-4))


def colour_of_word(places: tuple[Place, ...]) -> dict[int, Colour]:
    return {word: place.colour for place in places for word in place.words}


def shares(weights: Float[Array, "word region"]) -> Float[Array, "word region"]:
    """Each word's weights as shares of its own attention (rows sum to one, or to zero where it attends to nothing)."""
    positive = np.clip(weights, 0, None)
    total = positive.sum(axis=1, keepdims=True)
    share: Float[Array, "word region"] = np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)
    return share


def strengths(explanation: Explanation) -> Float[Array, " word"] | None:
    """The words' scores in 0..1. Cosines stay as they are; scores of a larger scale are divided by the largest."""
    if explanation.word_score is None:
        return None
    scores = np.asarray(explanation.word_score, dtype=np.float64)
    largest = float(np.abs(scores).max(initial=0.0))
    scaled: Float[Array, " word"] = np.clip(scores / largest if largest > 1.0 + 1e-4 else scores, 0.0, 1.0)
    return scaled


@dataclass(frozen=True)
class Share:
    """A number of 0..1 that some models have for each word, drawn as a framed bar beneath it."""

    values: Float[Array, " word"]
    name: str
    note: str  # how to read it


def share_of_words(explanation: Explanation) -> Share | None:
    """How far a matcher's words let in what they found; how much of a captioner's attention went to no region."""
    if explanation.sentinel is not None:
        return Share(explanation.sentinel, "sentinel", "sentinel: the share of the attention that went to no region")
    if explanation.word_gate is not None:
        return Share(explanation.word_gate, "gate", "gate: how far a word lets in what it found")
    return None


def score_note(explanation: Explanation) -> str:
    """The score in words."""
    if explanation.said:
        return f"log-probability {explanation.score:.2f} · bars: how sure of each word"
    return f"score {explanation.score:.3f}"


def label(explanation: Explanation, place: Place) -> str:
    """The place's words as a tag, each word once: neighbours in the sentence joined by a space, others by a dot."""
    text, seen, before = "", set[str](), -2
    for index in place.words:
        word = explanation.words[index]
        if word not in seen:
            text += (" " if index == before + 1 else " · ") * bool(text) + word
            seen.add(word)
            before = index
    return text
