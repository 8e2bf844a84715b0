"""WUPS (Malinowski, Fritz: A Multi-World Approach to Question Answering, NIPS 2014): "carton" is nearly "box".

An answer A and the truth T are sets of words. Words are compared by how deep WordNet's nouns have their nearest common
ancestor (Wu, Palmer 1994), in the senses that are nearest; what is below a threshold t counts a tenth:

    WUP_t(a, b) = WUP(a, b) if WUP(a, b) ≥ t else 0.1 · WUP(a, b)
    WUPS_t(A, T) = min(Π_{a ∈ A} max_{b ∈ T} WUP_t(a, b), Π_{b ∈ T} max_{a ∈ A} WUP_t(a, b))

At t = 0.9 near synonyms count; at t = 0 nearly everything counts a good deal, numbers among themselves too. A word that
is no noun of WordNet matches itself alone. As t → 1 it becomes accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from saccade.core.errors import SaccadeError
from saccade.language.wordnet import Nouns
from saccade.metrics.answers import Score, normalise_answer

THRESHOLDS = (0.9, 0.0)
FAR = 0.1  # what a word below the threshold counts


def wups(prediction: str, truth: str, nouns: Nouns, threshold: float = 0.9) -> float:
    """WUPS of one answer, 0 … 1; items are separated by commas, and lower case."""
    said, true = _items(prediction), _items(truth)
    if not said or not true:
        return float(said == true)
    near = [[_near(a, b, nouns, threshold) for b in true] for a in said]
    return float(min(prod(map(max, near)), prod(map(max, zip(*near, strict=True)))))


def wups_scores(nouns: Nouns) -> dict[str, Score]:
    """WUPS at both thresholds, for `score_answers`."""

    def at(threshold: float) -> Score:
        @cache  # most pairs of answers come again and again
        def score(prediction: str, truth: str) -> float:
            return wups(prediction, truth, nouns, threshold)

        def of(prediction: str, answers: Sequence[str]) -> float:
            if len(answers) != 1:
                raise SaccadeError(f"WUPS compares with one truth, there are {len(answers)} answers")
            return score(prediction, answers[0])

        return of

    return {f"wups_{threshold}": at(threshold) for threshold in THRESHOLDS}


def _items(text: str) -> list[str]:
    return [item.strip().lower() for item in text.split(",") if item.strip()]


def _near(one: str, other: str, nouns: Nouns, threshold: float) -> float:
    if one == other or normalise_answer(one) == normalise_answer(other):
        return 1.0
    found = nouns.similarity(one, other)
    return found if found >= threshold else FAR * found
