"""Click prediction: area under the ROC curve over all impressions and within users, and the log loss."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

from saccade.metrics.statistics import roc_auc

LOG_FLOOR = 1e-7  # probabilities are kept so far from 0 and 1


def grouped_auc(
    users: Int[Array, " impression"], clicked: Int[Array, " impression"], scores: Float[Array, " impression"]
) -> tuple[float, int]:
    """GAUC: the mean over users of their areas under the curve, weighted by impressions, and the sum of the weights.

    Users who clicked on all or on nothing are left out.
    """
    total, weight = 0.0, 0
    for user in np.unique(users):
        own = users == user
        yes, no = scores[own & (clicked == 1)], scores[own & (clicked != 1)]
        if len(yes) and len(no):
            total += int(own.sum()) * roc_auc(yes, no)
            weight += int(own.sum())
    return (total / weight if weight else 0.5), weight


def log_loss(clicked: Int[Array, " impression"], probabilities: Float[Array, " impression"]) -> float:
    """The mean of −log of the probability of what happened."""
    sure = np.clip(probabilities, LOG_FLOOR, 1 - LOG_FLOOR)
    return float(-np.mean(np.where(clicked == 1, np.log(sure), np.log(1 - sure))))
