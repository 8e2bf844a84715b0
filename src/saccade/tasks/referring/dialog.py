"""Dialogs from files; and read by a referrer that learned phrases alone: every turn a phrase, all turns multiplied.

s_t = p(· | phrase_t) / max p(· | phrase_t)        the share of each candidate, relative to the best one
w_t = s_t after "yes" or an answer that describes, 1 − s_t after "no"
p   ∝ Π_t max(w_t, ε)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, read_text
from saccade.explain.explanation import is_content
from saccade.language import Vocabulary, shared_parser
from saccade.language.caption_words import HAVE, MODALS
from saccade.language.tokenise import tokenise

ASKING_TAGS = ("AUX", "PRON", "PUNCT")  # "is it …?", "are they …?"
OF_THE_THING = ("in", "on", "with")  # "in red", "on the left"; other prepositions are about another thing
MIN_WEIGHT = 0.01  # ε: a turn may be misunderstood, and what it rules out may come back


def read_dialog(path: Path) -> tuple[str, ...]:
    """The turns of a file: "is it red? yes" on each line, or JSON, a list of [question, answer].

    Raises: SaccadeError, which names the line or the pair, if a question or an answer is missing, or there is no turn.
    """
    text = read_text(path)
    if path.suffix == ".json" or text.lstrip().startswith("["):
        pairs = read_json(path)
        if not isinstance(pairs, list):
            raise SaccadeError(f"{path}: a list of [question, answer] was expected")
        turns = tuple(_pair_turn(pair, f"{path}, pair {n}") for n, pair in enumerate(pairs, start=1))
    else:
        lines = enumerate(text.splitlines(), start=1)
        turns = tuple(as_turn(line, f"{path}, line {n}") for n, line in lines if line.strip())
    if not turns:
        raise SaccadeError(f"{path} holds no dialog: a question with its answer was expected on every line")
    return turns


def as_turn(line: str, where: str) -> str:
    """A line as a turn. Raises: SaccadeError, which starts with `where`, if it is not "QUESTION? ANSWER"."""
    question, _, answer = (part.strip() for part in line.rpartition("?"))
    if not question or not answer:
        expected = 'a question ending in "?" and its answer were expected ("is it red? yes")'
        raise SaccadeError(f'{where}: {expected}, not "{line.strip()}"')
    return f"{question}? {answer}"


def _pair_turn(pair: Any, where: str) -> str:
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) and part.strip() for part in pair)):
        raise SaccadeError(f'{where}: ["is it red?", "yes"] was expected, not {str(pair)[:60]}')
    return as_turn(f"{pair[0].rstrip(' ?')}? {pair[1]}", where)


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
