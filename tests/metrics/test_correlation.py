"""Kendall's tau against its definition, pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.core.errors import SaccadeError
from saccade.metrics.statistics import inversions, kendall

grades = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 9)), min_size=2, max_size=30)


@given(grades)
def test_tau_is_its_definition(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, dtype=float).T
    signs = [(np.sign(a - c), np.sign(b - d)) for (a, b), (c, d) in combinations(pairs, 2)]
    difference = sum(int(x * y) for x, y in signs)
    untied = [sum(1 for sign in signs if sign[side]) for side in (0, 1)]
    fewest = min(len(set(one)), len(set(other)))
    found = kendall(one, other)
    if fewest == 1:
        assert (found.b, found.c) == (0.0, 0.0)
        return
    assert found.b == pytest.approx(difference / (untied[0] * untied[1]) ** 0.5, abs=1e-12)
    assert found.c == pytest.approx(2 * difference / (len(pairs) ** 2 * (fewest - 1) / fewest), abs=1e-12)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_inversions_are_counted(values: list[int]) -> None:
    assert inversions(np.array(values)) == sum(a > b for a, b in combinations(values, 2))


def test_the_same_order_is_one_and_the_opposite_minus_one() -> None:
    values = np.array([0.1, 0.7, 0.3, 0.2])
    assert kendall(values, values**3).b == 1
    assert kendall(values, -values).c == -1


def test_things_that_cannot_be_ranked_are_refused() -> None:
    for one, other in (([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([1.0, float("nan")], [1.0, 2.0])):
        with pytest.raises(SaccadeError):
            kendall(np.array(one), np.array(other))
