"""Figures of detectors by hand."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.metrics.detection import average_precision


def test_average_precision_by_hand() -> None:
    right = np.array([True, False, True, False])
    assert average_precision(right, total=2) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(right[:0], total=2) == 0
