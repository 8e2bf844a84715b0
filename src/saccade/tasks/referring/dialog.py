"""A dialog read by a referrer that learned phrases alone: every turn is a phrase, and the turns are multiplied.

s_t = p(· | phrase_t) / max p(· | phrase_t)        the share of each candidate, relative to the best one
w_t = s_t after "yes" or an answer that describes, 1 − s_t after "no"
p   ∝ Π_t max(w_t, ε)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from saccade.explain.explanation import is_content
from saccade.language import Vocabulary, shared_parser
from saccade.language.caption_words import HAVE, MODALS
from saccade.language.tokenise import tokenise

ASKING_TAGS = ("AUX", "PRON", "PUNCT")  # "is it …?", "are they …?"
OF_THE_THING = ("in", "on", "with")  # "in red", "on the left"; other prepositions are about another thing
MIN_WEIGHT = 0.01  # ε: a turn may be misunderstood, and what it rules out may come back


def learned_dialogs(vocabulary: Vocabulary) -> bool:
    """Whether a model knows what answers mean, or learned phrases alone."""
    return "yes" in vocabulary and "no" in vocabulary


def turn_phrase(turn: str, vocabulary: Vocabulary) -> tuple[str, bool]:
    """The words of a turn that describe a thing, and whether the thing is like that.

    "is it a red car? no" → ("a red car", False); "what colour is it? red" → ("red", True). No words where the model
    knows none that a picture could show, or where they place the thing beside another ("left of the dog").
    """
    question, _, answer = turn.rpartition("?")
    said = tokenise(answer)[:1]
    parse = shared_parser().parse([question if said in (["yes"], ["no"]) else answer])[0]
    tagged = [
        (word, tag)
        for word, tag in zip(parse.tokens, parse.tags, strict=True)
        if tag not in ASKING_TAGS and word not in HAVE | MODALS
    ]
    is_known = any(is_content(word) and word in vocabulary for word, _ in tagged)
    is_placed = is_known and tagged[0][1] == "ADP" and tagged[0][0] not in OF_THE_THING
    return " ".join(word for word, _ in tagged) if is_known and not is_placed else "", said != ["no"]


def turns_multiplied(
    turns: Sequence[str], vocabulary: Vocabulary, candidate_count: int, chances_of: Callable[[str], np.ndarray]
) -> Float[np.ndarray, "turn candidate"]:
    """How likely each candidate is after every turn; `chances_of` a phrase are the model's [candidate].

    A turn that describes nothing changes nothing.
    """
    weights = np.ones((len(turns), candidate_count))
    for own, turn in zip(weights, turns, strict=True):
        phrase, is_so = turn_phrase(turn, vocabulary)
        if phrase:
            chances = chances_of(" ".join(word for word in phrase.split() if word in vocabulary))
            share = chances / chances.max()
            own[:] = np.maximum(share if is_so else 1 - share, MIN_WEIGHT)
    logs = np.log(weights).cumsum(axis=0)
    left = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances_after: np.ndarray = left / left.sum(axis=1, keepdims=True)
    return chances_after
