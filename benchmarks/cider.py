"""CIDEr-D against the official algorithm: time of 5,000 captions with five references each, in one run.

    python benchmarks/cider.py [--captions 5000] [--references 5] [--batch 50] [--samples 5]

Captions are those of the built-in world. The official algorithm is written again from its description: an n-gram is a
tuple of words, a caption a dictionary of weights, candidate and reference are compared n-gram by n-gram, and references
are counted anew at each call. If the PyPI package pycocoevalcap can be imported, it is timed too (it need not be in the
same environment: `pip install --target FOLDER --no-deps pycocoevalcap`, then PYTHONPATH=FOLDER). Times are of the
processor, the best of three. Ours is timed from plain tokens with everything counted anew, as the others are; with the
references prepared, as self-critical training has them; and for one step of that training.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np

from saccade.language import tokenise
from saccade.metrics.caption_cider import CiderD, cider_d
from saccade.world.captions import caption_scene
from saccade.world.dice import Dice
from saccade.world.sample import sample_scene

Captions = list[list[str]]
Vector = tuple[list[dict[tuple[str, ...], float]], list[float], int]


def problem(captions: int, references: int) -> tuple[Captions, list[Captions]]:
    """What is said of so many scenes: one caption to be scored, the others to score it by."""
    candidates, given = [], []
    for number in range(captions):
        dice = Dice(f"cider {number}")
        told = caption_scene(sample_scene(dice, str(number)), dice, references + 1)
        sentences = [tokenise(caption.text) for caption in told]
        candidates.append(sentences[0])
        given.append(sentences[1:])
    return candidates, given


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


def package() -> Callable[[Captions, list[Captions]], list[float]] | None:
    """pycocoevalcap's scorer on captions as it wants them, if it is there."""
    try:
        from pycocoevalcap.cider.cider import Cider  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None

    def score(candidates: Captions, references: list[Captions]) -> list[float]:
        given = {i: [" ".join(caption) for caption in captions] for i, captions in enumerate(references)}
        return list(Cider().compute_score(given, {i: [" ".join(c)] for i, c in enumerate(candidates)})[1])

    return score


def seconds(run: Callable[[], object], times: int = 3) -> float:
    spent = []
    for _ in range(times):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=5000)
    parser.add_argument("--references", type=int, default=5)
    parser.add_argument("--batch", type=int, default=50, help="pictures of a step of self-critical training")
    parser.add_argument("--samples", type=int, default=5, help="captions drawn for each of them")
    arguments = parser.parse_args()
    candidates, references = problem(arguments.captions, arguments.references)
    prepared = CiderD(references)
    batch = min(arguments.batch, len(candidates))
    owners = np.repeat(np.arange(batch), arguments.samples)
    drawn = [candidates[owner] for owner in owners]
    runs: dict[str, Callable[[], object]] = {"official algorithm": lambda: official(candidates, references)}
    scorer = package()
    if scorer is not None:
        runs["pycocoevalcap"] = lambda: scorer(candidates, references)
    runs |= {
        "ours, all anew": lambda: cider_d(candidates, references),
        "ours, references prepared": lambda: prepared.score(candidates),
    }
    spent = {name: seconds(run) for name, run in runs.items()}
    known = np.array(scorer(candidates, references) if scorer else official(candidates, references))
    difference = float(np.abs(prepared.score(candidates) - known).max())
    words = sum(map(len, candidates)) / len(candidates)
    slow = spent["pycocoevalcap" if scorer else "official algorithm"]
    print(f"{len(candidates):,} captions of {words:.1f} words, {arguments.references} references each, one core")
    for name, value in spent.items():
        print(f"{name:26} {1000 * value:9,.1f} ms   {slow / value:6.1f}×")
    step = seconds(lambda: prepared.score(drawn, owners), times=10)
    print(f"{len(drawn):,} captions of {batch} pictures: {1000 * step:.1f} ms a step, references prepared")
    print(f"largest difference to {'pycocoevalcap' if scorer else 'the official algorithm'}: {difference:.1e}")


if __name__ == "__main__":
    main()
