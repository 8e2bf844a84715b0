"""Kendall's rank correlation (do two judges put things in the same order?), the area under the ROC curve, intervals of
rates by bootstrap, and means of several seeds with spread.

Of all pairs of things, C are put in the same order by both judges, D in opposite orders; T₁ and T₂ are the pairs that
the first and the second judge hold equal, n₀ = n(n-1)/2 are all pairs, m is the smaller number of different values:

    τ_b = (C - D) / √((n₀ - T₁)(n₀ - T₂))        τ_c = 2·(C - D) / (n²·(m-1)/m)

τ_b is 1 only where both have the same ties; τ_c allows for judges with few grades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from saccade.core.errors import SaccadeError


@dataclass(frozen=True)
class Kendall:
    b: float
    c: float


def kendall(one: Float[np.ndarray, " thing"], other: Float[np.ndarray, " thing"]) -> Kendall:
    """τ_b and τ_c in O(n log² n). A judge who holds all things equal agrees with nobody: 0."""
    if len(one) != len(other):
        raise SaccadeError(f"two judges of the same things were expected: one has {len(one)}, the other {len(other)}")
    if len(one) < 2 or not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise SaccadeError("a rank correlation needs two things or more, with finite scores")
    first, second = (np.unique(values, return_inverse=True)[1].astype(np.int64) for values in (one, other))
    count = len(first)
    pairs = count * (count - 1) // 2
    tied_one, tied_other = _tied(first), _tied(second)
    tied_both = _tied(first * (int(second.max()) + 1) + second)
    against = inversions(second[np.lexsort((second, first))])
    difference = pairs - tied_one - tied_other + tied_both - 2 * against  # C - D
    grades = min(int(first.max()), int(second.max())) + 1
    if grades == 1:
        return Kendall(0.0, 0.0)
    return Kendall(
        difference / math.sqrt((pairs - tied_one) * (pairs - tied_other)),
        2 * difference * grades / (count**2 * (grades - 1)),
    )


def _tied(values: Int[np.ndarray, " thing"]) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def inversions(values: Int[np.ndarray, " thing"]) -> int:
    """Pairs in which the earlier value is the greater, of values from 0.

    Two values first differ in some bit; among those equal in the bits above it, an inversion is a 1 before a 0.
    """
    total = 0
    for bit in reversed(range(int(values.max()).bit_length())):
        above = values >> (bit + 1)
        order = np.argsort(above, kind="stable")
        ones = (values[order] >> bit) & 1
        before = np.cumsum(ones) - ones  # 1s that stand before, also those of earlier groups
        begins = np.flatnonzero(np.r_[True, np.diff(above[order]) != 0])
        within = before - np.repeat(before[begins], np.diff(np.r_[begins, len(values)]))
        total += int(within[ones == 0].sum())
    return total


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """`71.3 ± 0.8`: the mean and the standard deviation of a sample; of one value, the value alone."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


def roc_auc(positive: Float[np.ndarray, " thing"], negative: Float[np.ndarray, " other"]) -> float:
    """How often a positive has a higher score than a negative, ties counting half: (R⁺ - n⁺(n⁺+1)/2) / (n⁺ n⁻)."""
    if not len(positive) or not len(negative):
        raise SaccadeError("the area under a ROC curve needs scores of both kinds")
    _, inverse, counts = np.unique(np.concatenate([positive, negative]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # from 1, the mean rank of equals
    count = len(positive)
    return float((ranks[:count].sum() - count * (count + 1) / 2) / (count * len(negative)))


def rate_interval(
    values: Float[np.ndarray, " case"], groups: Int[np.ndarray, " case"], draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The middle 95 % of the mean over groups (the pictures that cases are of) drawn with replacement."""
    numbers = np.unique(groups, return_inverse=True)[1]
    sums, counts = np.bincount(numbers, weights=values), np.bincount(numbers)
    drawn = np.random.default_rng(seed).integers(0, len(sums), (draws, len(sums)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)
