"""CIDEr-D against the official algorithm: 5,000 captions with five references each.

Captions are those of the built-in world. The official algorithm is written again from its description: an n-gram is a
tuple of words, a caption a dictionary of weights, candidate and reference are compared n-gram by n-gram, and references
are counted anew at each call. If the PyPI package pycocoevalcap can be imported, it is timed instead (it need not be in
the same environment: `pip install --target FOLDER --no-deps pycocoevalcap`, then PYTHONPATH=FOLDER). Ours is timed from
plain tokens with everything counted anew, as the others are; with the references prepared, as self-critical training
has them; and for one step of that training.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row, Target
from saccade.language import tokenise
from saccade.metrics.captions.cider import CiderD, cider_d
from saccade.world.captions import caption_scene
from saccade.world.dice import Dice
from saccade.world.sample import sample_scene

REFERENCES = 5
Captions = list[list[str]]
Vector = tuple[list[dict[tuple[str, ...], float]], list[float], int]


def cases(bench: Bench) -> Iterator[Case]:
    """On the CPU, also beside a GPU."""
    count = bench.size(5000, 20)
    yield Case("CIDEr-D, everything counted anew", partial(anew, bench, count))
    yield Case("CIDEr-D, references prepared", partial(prepared, bench, count))
    yield Case("CIDEr-D, a step of self-critical training", partial(step, bench, count))


def anew(bench: Bench, count: int) -> Row:
    candidates, references = problem(count)
    spent = processor_seconds(lambda: cider_d(candidates, references), bench.size(9, 1))
    return _row(bench, count, spent, CiderD(references).score(candidates))


def prepared(bench: Bench, count: int) -> Row:
    candidates, references = problem(count)
    ready = CiderD(references)
    spent = processor_seconds(lambda: ready.score(candidates), bench.size(9, 1))
    return _row(bench, count, spent, ready.score(candidates))


def _row(bench: Bench, count: int, spent: float, found: object) -> Row:
    known, slow, note = known_scores(count, bench.size(3, 1))
    return Row(
        name="",
        shape=f"{count:,} captions, {REFERENCES} references each",
        seconds=spent,
        official_seconds=slow,
        difference=float(np.abs(np.asarray(found) - known).max()),
        targets=(Target("speedup", "≥", 20),),
        note=note,
    )


@cache
def known_scores(count: int, times: int) -> tuple[np.ndarray, float, str]:
    """The official scores, how long they took, and who gave them."""
    score, note = scorer()
    given = problem(count)
    return np.array(score(*given)), processor_seconds(lambda: score(*given), times), note


def processor_seconds(run: Callable[[], object], times: int) -> float:
    """The best of several, in time of the processor: one thread does it all, and others' work does not count."""
    spent = []
    for _ in range(times):
        begun = time.process_time()
        run()
        spent.append(time.process_time() - begun)
    return min(spent)


def step(bench: Bench, count: int, pictures: int = 50, samples: int = 5) -> Row:
    candidates, references = problem(count)
    ready = CiderD(references)
    owners = np.repeat(np.arange(min(pictures, count)), samples)
    drawn = [candidates[owner] for owner in owners]
    spent = processor_seconds(lambda: ready.score(drawn, owners), bench.size(10, 1))
    return Row("", f"{len(drawn)} captions of {min(pictures, count)} pictures", spent)


@cache
def problem(captions: int, references: int = REFERENCES) -> tuple[Captions, list[Captions]]:
    """What is said of so many scenes: one caption to be scored, the others to score it by."""
    candidates, given = [], []
    for number in range(captions):
        dice = Dice(f"cider {number}")
        told = caption_scene(sample_scene(dice, str(number)), dice, references + 1)
        sentences = [tokenise(caption.text) for caption in told]
        candidates.append(sentences[0])
        given.append(sentences[1:])
    return candidates, given


def scorer() -> tuple[Callable[[Captions, list[Captions]], list[float]], str]:
    """pycocoevalcap's scorer on captions as it wants them, if it is there, and which it is."""
    try:
        from pycocoevalcap.cider.cider import Cider  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return (
            official,
            "against the official algorithm written again; the target is meant against pycocoevalcap, not here",
        )

    def score(candidates: Captions, references: list[Captions]) -> list[float]:
        given = {i: [" ".join(caption) for caption in captions] for i, captions in enumerate(references)}
        return list(Cider().compute_score(given, {i: [" ".join(c)] for i, c in enumerate(candidates)})[1])

    return score, "against pycocoevalcap"


def official(candidates: Captions, references: list[Captions]) -> list[float]:
    """One caption, one reference, one n-gram at a time."""
    said = [ngrams(caption) for caption in candidates]
    wanted = [[ngrams(caption) for caption in captions] for captions in references]
    frequency: dict[tuple[str, ...], float] = defaultdict(float)
    for captions in wanted:
        for ngram in {ngram for caption in captions for ngram in caption}:
            frequency[ngram] += 1
    whole = math.log(len(references))
    scores = []
    for own, captions in zip(said, wanted, strict=True):
        vector = weigh(own, frequency, whole)
        total = sum(sum(similarity(vector, weigh(caption, frequency, whole))) for caption in captions)
        scores.append(10 * total / 4 / len(captions))
    return scores


def ngrams(words: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1))


def weigh(counts: Counter[tuple[str, ...]], frequency: dict[tuple[str, ...], float], whole: float) -> Vector:
    weights: list[dict[tuple[str, ...], float]] = [defaultdict(float) for _ in range(4)]
    squares, pairs = [0.0] * 4, 0
    for ngram, times in counts.items():
        n = len(ngram) - 1
        weights[n][ngram] = times * (whole - math.log(max(1.0, frequency[ngram])))
        squares[n] += weights[n][ngram] ** 2
        pairs += times if n == 1 else 0
    return weights, [math.sqrt(square) for square in squares], pairs


def similarity(one: Vector, other: Vector) -> list[float]:
    penalty = math.exp(-((one[2] - other[2]) ** 2) / 72)
    values = []
    for n in range(4):
        value = sum(min(weight, other[0][n][ngram]) * other[0][n][ngram] for ngram, weight in one[0][n].items())
        size = one[1][n] * other[1][n]
        values.append(penalty * (value / size if size else value))
    return values
