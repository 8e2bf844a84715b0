"""Probabilities out of scores, and whether they can be believed.

A matcher's score ranks; it does not say how likely a sentence fits a picture. Two numbers fitted on pairs of which that
is known turn it into a probability (Platt, *Probabilistic Outputs for Support Vector Machines*, 1999):

    p(s) = 1 / (1 + exp(−(a s + b)))

Of all pairs that were given about the same probability p, a share of p should fit. The mean distance between the two,
over bins of p and weighted by their pairs, is the expected calibration error (Guo et al., *On Calibration of Modern
Neural Networks*, ICML 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from saccade.core.errors import SaccadeError

STEPS = 100  # of Newton's method, at most: it needs about ten
BINS = 15


@dataclass(frozen=True)
class Platt:
    """p(s) = σ(slope · s + offset)."""

    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, scores: Float[np.ndarray, "*pair"]) -> Float[np.ndarray, "*pair"]:
        logits = np.clip(self.slope * np.asarray(scores, dtype=np.float64) + self.offset, -700, 700)
        return np.asarray(1 / (1 + np.exp(-logits)))


def fit_platt(scores: Float[np.ndarray, " pair"], fits: Bool[np.ndarray, " pair"]) -> Platt:
    """The slope and offset of largest likelihood, by Newton's method.

    As in Platt's paper the targets are a little less sure than 0 and 1, so that there is a largest likelihood even
    where some score divides the pairs that fit from the others.

    Raises: SaccadeError if a score is not finite, if all pairs fit or none does, or if all scores are the same.
    """
    scores, positives = np.asarray(scores, dtype=np.float64), int(fits.sum())
    if not np.isfinite(scores).all():
        raise SaccadeError("a probability cannot be fitted to scores that are not finite")
    if not 0 < positives < len(fits) or np.ptp(scores) == 0:
        raise SaccadeError("a probability needs pairs that fit and pairs that do not, with different scores")
    targets = np.where(fits, (positives + 1) / (positives + 2), 1 / (len(fits) - positives + 2))
    centre, spread = scores.mean(), scores.std()
    design = np.stack([(scores - centre) / spread, np.ones_like(scores)], axis=1)
    found = np.zeros(2)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(design @ found, -700, 700)))
        gradient = design.T @ (chance - targets)
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + 1e-9 * len(scores) * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        found -= np.clip(step, -4, 4)  # far from the answer the curve is nearly flat, and a whole step too long
        if np.abs(step).max() < 1e-10:
            break
    slope = found[0] / spread
    return Platt(float(slope), float(found[1] - slope * centre))


@dataclass(frozen=True)
class Reliability:
    """Bins of equal width of the probability; those without a pair are left out."""

    confidence: Float[np.ndarray, " bin"]  # the mean probability given
    rate: Float[np.ndarray, " bin"]  # the share of pairs that fit
    count: Int[np.ndarray, " bin"]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return float((self.count * np.abs(self.confidence - self.rate)).sum() / self.count.sum())


def reliability(
    probabilities: Float[np.ndarray, " pair"], fits: Bool[np.ndarray, " pair"], bins: int = BINS
) -> Reliability:
    if not len(probabilities) or len(probabilities) != len(fits):
        raise SaccadeError(f"{len(probabilities)} probabilities of {len(fits)} pairs: there must be one of each")
    which = np.minimum((np.asarray(probabilities) * bins).astype(int), bins - 1)
    count = np.bincount(which, minlength=bins)
    held = count > 0
    sums = [np.bincount(which, weights=np.asarray(values, float), minlength=bins) for values in (probabilities, fits)]
    confidence, rate = (total[held] / count[held] for total in sums)
    return Reliability(confidence, rate, count[held])
