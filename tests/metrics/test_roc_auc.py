"""The area under the ROC curve, and intervals of rates."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.metrics.statistics import rate_interval, roc_auc


def test_it_is_the_share_of_pairs_in_the_right_order() -> None:
    dice = np.random.default_rng(0)
    positive, negative = dice.integers(0, 9, 40) / 1.0, dice.integers(-3, 6, 30) / 1.0
    above = positive[:, None] > negative
    equal = positive[:, None] == negative
    assert roc_auc(positive, negative) == pytest.approx((above + 0.5 * equal).mean())


@pytest.mark.parametrize(("positive", "negative", "area"), [([2, 3], [0, 1], 1), ([0], [1, 2], 0), ([1, 1], [1], 0.5)])
def test_ends_and_ties(positive: list[float], negative: list[float], area: float) -> None:
    assert roc_auc(np.array(positive, dtype=float), np.array(negative, dtype=float)) == area


def test_one_kind_alone_is_refused() -> None:
    with pytest.raises(SaccadeError, match="both kinds"):
        roc_auc(np.ones(3), np.ones(0))


def test_an_interval_draws_groups() -> None:
    values, groups = np.array([1.0] * 50 + [0.0] * 50), np.repeat([7, 9], 50)
    assert rate_interval(values, groups) == (0, 1)  # two pictures: all of one, all of the other, or both
    low, high = rate_interval(values, np.arange(100))
    assert 0.35 < low < 0.5 < high < 0.65
    assert rate_interval(np.ones(5), np.arange(5)) == (1, 1)
