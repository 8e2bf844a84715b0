"""Means and spreads as tables write them."""

from __future__ import annotations

import pytest

from saccade.metrics import mean_and_spread


@pytest.mark.parametrize(
    ("values", "written"),
    [([71.25], "71.2"), ([1.0, 3.0], "2.0 ± 1.4"), ([5.0, 5.0, 5.0], "5.0 ± 0.0")],
)
def test_a_cell_gives_the_mean_and_the_deviation_of_a_sample(values: list[float], written: str) -> None:
    assert mean_and_spread(values) == written


def test_digits_count_for_both_numbers() -> None:
    assert mean_and_spread([0.10, 0.20], digits=3) == "0.150 ± 0.071"
