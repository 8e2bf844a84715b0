"""Click prediction: area under the ROC curve over all impressions and within users, and the log loss, with intervals
over users."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray as Array

from saccade.metrics.statistics import roc_auc

LOG_FLOOR = 1e-7  # probabilities are kept so far from 0 and 1


def user_aucs(
    users: Int[Array, " impression"], clicked: Int[Array, " impression"], scores: Float[Array, " impression"]
) -> tuple[Float[Array, " user"], Int[Array, " user"]]:
    """Of every user, in order: the area under the curve, and the number of impressions, which is the weight: 0 of users
    who clicked on all or on nothing."""
    order = np.argsort(users, kind="stable")
    bounds = np.flatnonzero(np.diff(users[order])) + 1
    areas, weights = [], []
    for own in np.split(order, bounds) if len(order) else ():
        yes = clicked[own] == 1
        both = bool(yes.any()) and not bool(yes.all())
        areas.append(roc_auc(scores[own][yes], scores[own][~yes]) if both else 0.5)
        weights.append(len(own) if both else 0)
    return np.array(areas), np.array(weights, dtype=np.int64)


def grouped_auc(
    users: Int[Array, " impression"], clicked: Int[Array, " impression"], scores: Float[Array, " impression"]
) -> tuple[float, int]:
    """GAUC: the mean over users of their areas under the curve, weighted by impressions, and the sum of the weights.

    Users who clicked on all or on nothing are left out.
    """
    areas, weights = user_aucs(users, clicked, scores)
    total = int(weights.sum())
    return (float((areas * weights).sum() / total) if total else 0.5), total


def log_losses(
    clicked: Int[Array, " impression"], probabilities: Float[Array, " impression"]
) -> Float[Array, " impression"]:
    """−log of the probability of what happened."""
    sure = np.clip(probabilities, LOG_FLOOR, 1 - LOG_FLOOR)
    return np.asarray(-np.where(clicked == 1, np.log(sure), np.log(1 - sure)))


def log_loss(clicked: Int[Array, " impression"], probabilities: Float[Array, " impression"]) -> float:
    return float(np.mean(log_losses(clicked, probabilities)))


def click_intervals(
    users: Int[Array, " impression"],
    clicked: Int[Array, " impression"],
    probabilities: Float[Array, " impression"],
    draws: int = 500,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """The middle 95 % of AUC, GAUC and LogLoss over users drawn with replacement."""
    number = np.unique(users, return_inverse=True)[1]
    count = int(number.max()) + 1
    areas, weights = user_aucs(number, clicked, probabilities)
    losses, sizes = np.bincount(number, log_losses(clicked, probabilities)), np.bincount(number)
    place = np.unique(probabilities, return_inverse=True)[1]
    yes = clicked == 1
    found: dict[str, list[float]] = {"auc": [], "gauc": [], "logloss": []}
    drawn = np.random.default_rng(seed).integers(0, count, (draws, count))
    for one in drawn:
        often = np.bincount(one, minlength=count)
        each = often[number]
        positive, negative = np.bincount(place, each * yes), np.bincount(place, each * ~yes)
        pairs = positive.sum() * negative.sum()
        if pairs:
            found["auc"].append(float((positive * (np.cumsum(negative) - negative / 2)).sum() / pairs))
        if total := int((often * weights).sum()):
            found["gauc"].append(float((often * weights * areas).sum() / total))
        found["logloss"].append(float((often * losses).sum() / (often * sizes).sum()))
    return {name: tuple(np.quantile(values or [0.5], [0.025, 0.975]).tolist()) for name, values in found.items()}
