"""Is a difference more than luck? Over seeds by a paired t-test, over pictures by flipping signs; the verdict's rule.

The tests ask different questions. Seeds: would other weights and another order of the pictures turn the result round?
Pictures: would others? A handful of seeds says little by itself, so the verdict wants both, where the metric is a sum
over pictures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from saccade.tasks.evaluator import Scores

DRAWS = 10_000
LEVEL = 0.05
CHUNK = 1_000  # draws made at once

Verdict = Literal["does not hold", "undecided", "holds in direction", "holds"]  # from bad to good


@dataclass(frozen=True)
class Comparison:
    """Two variants on one split: the first is expected to be better."""

    better: str
    worse: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]  # of the metric, one a seed
    mean: float
    spread: float | None  # standard deviation over seeds
    p_seeds: float | None  # paired t-test, two-sided
    p_pictures: float | None  # signs flipped picture by picture, two-sided; None: the metric is no sum over pictures
    interval: tuple[float, float] | None  # 95 % of bootstrap sums over pictures
    verdict: Verdict
    why: str = ""  # it is undecided


def compare(
    better: str,
    worse: str,
    found: Sequence[tuple[int, Scores, Scores]],
    metric: str,
    draws: int = DRAWS,
    unfinished: Collection[str] = (),
    asked: int = 0,
) -> Comparison:
    """Compare two variants over the seeds that both have: (seed, scores of the better, scores of the worse).

    `unfinished` names variants that were still rising when their training ended. With fewer seeds than were `asked`
    for, nothing is decided: those that are missing may be the slow ones.
    """
    differences = [a.figures[metric] - b.figures[metric] for _, a, b in found]
    p_seeds, p_pictures, interval = paired_t(differences), None, None
    if all(metric in one.by_picture for _, *both in found for one in both):
        over_seeds = np.mean([a.by_picture[metric] - b.by_picture[metric] for _, a, b in found], axis=0)
        p_pictures, interval = sign_flip(over_seeds, draws), bootstrap(over_seeds, draws)
    verdict, why = judge(differences, p_seeds if p_pictures is None else p_pictures), ""
    if rising := [f"“{label}”" for label in (better, worse) if label in unfinished]:
        verdict, why = "undecided", f"{' and '.join(rising)} still rose at the last step"
    elif len(differences) < 2:
        verdict, why = "undecided", "one seed says nothing about seeds"
    elif len(differences) < asked:
        verdict, why = "undecided", f"{len(differences)} of {asked} seeds are measured"
    return Comparison(
        better,
        worse,
        tuple(seed for seed, _, _ in found),
        tuple(differences),
        mean=float(np.mean(differences)),
        spread=float(np.std(differences, ddof=1)) if len(differences) > 1 else None,
        p_seeds=p_seeds,
        p_pictures=p_pictures,
        interval=interval,
        verdict=verdict,
        why=why,
    )


def judge(differences: Sequence[float], p: float | None) -> Verdict:
    """The rule of docs/claims/index.md; `p` is that over pictures, or over seeds where pictures have no part."""
    if np.mean(differences) <= 0:
        return "does not hold"
    return "holds" if p is not None and p < LEVEL and min(differences) > 0 else "holds in direction"


def weakest(verdicts: Sequence[Verdict]) -> Verdict:
    """A claim of several comparisons is as good as its weakest."""
    return min(verdicts, key=get_args(Verdict).index, default="undecided")


def paired_t(differences: Sequence[float]) -> float | None:
    """Two-sided p of Student's t-test that the differences are 0 on average; None for a single one."""
    count = len(differences)
    if count < 2:
        return None
    mean, spread = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if spread == 0:
        return 1.0 if mean == 0 else 0.0
    return student_tail(mean / (spread / math.sqrt(count)), count - 1)


def student_tail(t: float, freedom: int) -> float:
    """How often |T| is at least |t| for Student's distribution: the incomplete beta function at f / (f + t²)."""
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised I_x(a, b), by its continued fraction (modified Lentz)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    tiny = 1e-300
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    value, c, d = 1.0, 1.0, 0.0
    for step in range(400):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        if step and abs(c * d - 1) < 1e-14:
            break
    return front * (value - 1)


def sign_flip(by_picture: Float[np.ndarray, " image"], draws: int = DRAWS, seed: int = 0) -> float:
    """Two-sided p: were the two variants alike, each picture's difference could as well have had the other sign."""
    moving = by_picture[by_picture != 0]
    if not len(moving):
        return 1.0
    dice = np.random.default_rng(seed)
    observed = abs(moving.sum()) - 1e-9
    as_far = 0
    for start in range(0, draws, CHUNK):
        signs = dice.integers(0, 2, (min(CHUNK, draws - start), len(moving))) * 2.0 - 1.0
        as_far += int((np.abs(signs @ moving) >= observed).sum())
    return (1 + as_far) / (1 + draws)


def bootstrap(by_picture: Float[np.ndarray, " image"], draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """The middle 95 % of the difference over as many pictures drawn with replacement, their captions with them."""
    dice = np.random.default_rng(seed)
    count = len(by_picture)
    sums = []
    for start in range(0, draws, CHUNK):
        drawn = dice.integers(0, count, (min(CHUNK, draws - start), count))
        sums.append(by_picture[drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(sums), [0.025, 0.975])
    return float(low), float(high)
