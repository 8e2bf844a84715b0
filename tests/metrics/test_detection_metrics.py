"""Figures of detectors by hand."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.metrics.detection import average_precision, precision_of_ranks


def test_average_precision_by_hand() -> None:
    right = np.array([True, False, True, False])
    assert average_precision(right, total=2) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(right[:0], total=2) == 0


def test_average_precision_needs_the_ranks_of_the_right_ones_alone() -> None:
    draw = np.random.default_rng(0)
    for share in (0.02, 0.3, 1.0):
        right = draw.random(200) < share
        hits, places = np.cumsum(right), np.arange(1, 201)
        best = np.maximum.accumulate((hits / places)[::-1])[::-1]
        total = int(right.sum()) + 3
        assert precision_of_ranks(np.flatnonzero(right), total) == pytest.approx((best * right).sum() / total)
    assert precision_of_ranks(np.zeros(0, np.int64), 2) == 0
    assert precision_of_ranks(np.zeros(0, np.int64), 0) == 0
