"""How good answers to questions are: VQA accuracy as its official evaluator computes it, and equality with one truth.

VQA accuracy (Antol et al. 2015). Ten people answered each question; an answer that three of them gave is right, and to
be fair to people each of them is left out once:

    accuracy(a) = mean over annotators k of min(#{j ≠ k : a_j = a} / 3, 1)      with ten: .3, .6, .9, 1 for 1, 2, 3, ≥ 4

Answers are compared after normalisation: lower case, no articles, numbers up to ten as digits, apostrophes put back
("dont"), punctuation removed. The official evaluator normalises only where the annotators differ: of ten "black",
"Black." is no match. That is the default here (`form="official"`), since published figures rest on it;
`form="normalised"` always normalises, as the evaluator's page describes it. `form="dcn"` is the evaluator of the Dense
Co-Attention Network's code: predictions are always normalised, the annotators' answers lose their punctuation alone,
where they differ.

Where one truth is known (DAQUAR, VQA-RAD, GQA, CLEVR), an answer is the set of its comma-separated items, each
normalised, and is right if the sets are equal. `metrics.wups` has the softer figure for such sets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError

Form: TypeAlias = Literal["official", "normalised", "dcn"]
Score: TypeAlias = Callable[[str, Sequence[str]], float]  # of a prediction beside all that annotators said
ENOUGH = 3  # annotators who agree make an answer right
REFERENCE_SCORES = (0.0, 0.3, 0.6, 0.9, 1.0)  # by the number of annotators, in Up-Down's re-implementation

_TEN = "zero one two three four five six seven eight nine ten"
NUMBERS = {"none": "0"} | {word: str(n) for n, word in enumerate(_TEN.split())}
ARTICLES = frozenset(("a", "an", "the"))
PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
MAX_FULL_STOPS = 32  # that go: the evaluator passes a flag, whose value is 32, where Python takes a count
_FULL_STOP, _THOUSANDS = re.compile(r"\.(?!\d)"), re.compile(r"\d,\d")
# Each is found where one of its apostrophes is missing; "somebody'd" goes the other way, as it does officially.
_SHORTENED = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're
there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've
when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't
wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
SHORTENED = {"somebody'd": "somebodyd"} | {
    word[:n] + word[n + 1 :]: word for word in _SHORTENED.split() for n, letter in enumerate(word) if letter == "'"
}


@lru_cache(maxsize=1 << 16)  # a few thousand answers make up most of a data set
def normalise_answer(text: str) -> str:
    """The official normalisation, which is also that of Up-Down's answer vocabulary."""
    words = [NUMBERS.get(word, word) for word in _without_punctuation(text).lower().split()]
    return " ".join(SHORTENED.get(word, word) for word in words if word not in ARTICLES)


def _without_punctuation(text: str) -> str:
    """A mark beside a blank goes, others become blanks; all go if a comma stands between digits anywhere."""
    thousands = _THOUSANDS.search(text) is not None
    found = text
    for mark in PUNCTUATION:
        gone = thousands or f"{mark} " in text or f" {mark}" in text
        found = found.replace(mark, "" if gone else " ")
    return _FULL_STOP.sub("", found, count=MAX_FULL_STOPS)


def answer_items(text: str) -> tuple[str, ...]:
    """The comma-separated items of an answer, each normalised: "Pillow, the bed" is pillow and bed."""
    items = (normalise_answer(item.strip()) for item in text.split(","))
    return tuple(item for item in items if item)


def canonical_answer(text: str) -> str:
    """One truth as it stands in an answer vocabulary: its items normalised, its commas kept."""
    return ", ".join(answer_items(text))


def vqa_accuracy(prediction: str, answers: Sequence[str], form: Form = "official", leave_one_out: bool = True) -> float:
    """The accuracy of one prediction, 0 … 1. Without `leave_one_out` it is min(matches / 3, 1).

    Raises: SaccadeError if nobody answered.
    """
    if not answers:
        raise SaccadeError("a question without answers cannot be scored: test splits keep theirs")
    said, given = one_line(prediction), list(answers) if form == "dcn" else [one_line(answer) for answer in answers]
    differ = len(set(given)) > 1
    if form == "dcn" or form == "normalised" or differ:
        said = normalise_answer(said)
    if form == "normalised" or (form == "official" and differ):
        given = [normalise_answer(answer) for answer in given]
    elif differ:
        given = [_without_punctuation(answer) for answer in given]
    return _agreement(given.count(said), len(given), leave_one_out)


def one_line(text: str) -> str:
    """What the official evaluator does to every answer before anything else."""
    return text.replace("\n", " ").replace("\t", " ").strip()


def _agreement(matches: int, annotators: int, leave_one_out: bool = True) -> float:
    if not leave_one_out:
        return min(matches / ENOUGH, 1.0)
    without, others = min((matches - 1) / ENOUGH, 1.0), min(matches / ENOUGH, 1.0)
    return (matches * without + (annotators - matches) * others) / annotators


def equals_truth(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction has the same items as the one known truth, whatever their order."""
    return float(set(answer_items(prediction)) == set(answer_items(_the_truth(answers))))


def _the_truth(answers: Sequence[str]) -> str:
    if len(answers) != 1:
        raise SaccadeError(f"one true answer was expected, there are {len(answers)}")
    return answers[0]


def answer_scores(answers: Sequence[Sequence[str]]) -> dict[str, Score]:
    """The figures that suit a split, the first of them its headline: by whether several people answered a question.

    Raises: SaccadeError if there are no questions, or nobody answered one of them.
    """
    if not answers or not all(answers):
        raise SaccadeError("these questions have no answers to score by: test splits keep theirs")
    if any(len(given) > 1 for given in answers):
        return {
            "vqa_accuracy": vqa_accuracy,
            "vqa_accuracy_normalised": lambda said, given: vqa_accuracy(said, given, "normalised"),
        }
    return {"accuracy": equals_truth}


def score_answers(
    predictions: Sequence[str | None], answers: Sequence[Sequence[str]], scores: dict[str, Score]
) -> dict[str, Float[np.ndarray, " question"]]:
    """Each figure of each question; None is no answer, which is wrong.

    Raises: SaccadeError if the lists differ in length.
    """
    if len(predictions) != len(answers):
        raise SaccadeError(f"{len(predictions)} predictions for {len(answers)} questions")
    pairs = list(zip(predictions, answers, strict=True))
    return {
        name: np.array([0.0 if said is None else score(said, given) for said, given in pairs])
        for name, score in scores.items()
    }


def by_kind(scores: Float[np.ndarray, " question"], kinds: Sequence[str]) -> dict[str, float]:
    """The mean over the questions of each kind, in the order of the alphabet; those without a kind are left out."""
    names = np.array(kinds)
    return {str(kind): float(scores[names == kind].mean()) for kind in np.unique(names) if kind}


def soft_scores(answers: Sequence[str], form: Literal["official", "reference"] = "official") -> dict[str, float]:
    """What each answer to a question is worth as a target: by how many said it; 1 where one truth is known.

    `reference` is Up-Down's re-implementation: it looks up annotators' answers as they are (its vocabulary alone is
    normalised) and has a table for ten of them.
    """
    if form == "reference":
        last = len(REFERENCE_SCORES) - 1
        return {answer: REFERENCE_SCORES[min(count, last)] for answer, count in Counter(answers).items()}
    if len(answers) == 1:
        return {canonical_answer(answers[0]): 1.0}
    counts = Counter(map(normalise_answer, answers))
    return {answer: _agreement(count, len(answers)) for answer, count in counts.items()}


def frequent_answers(
    answers: Iterable[Sequence[str]], min_count: int = 1, max_size: int | None = None
) -> tuple[str, ...]:
    """An answer vocabulary: what most people said to each question, if to at least `min_count` questions.

    The most frequent come first, equals by the alphabet. Up-Down's re-implementation has `min_count=9`.
    """
    counts: Counter[str] = Counter()
    for given in answers:
        if len(given) == 1:
            counts[canonical_answer(given[0])] += 1
        elif given:
            counts[normalise_answer(Counter(given).most_common(1)[0][0])] += 1
    ranked = sorted((-count, answer) for answer, count in counts.items() if count >= min_count and answer)
    return tuple(answer for _, answer in ranked[:max_size])
