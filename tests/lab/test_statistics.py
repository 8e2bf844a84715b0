"""Tests of tests: p-values that are known, sums that must agree, and the rule of the verdicts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_claims import owners, toy_ranks, toy_table

from saccade.lab.claims.statistics import (
    Verdict,
    bootstrap,
    compare,
    incomplete_beta,
    judge,
    paired_t,
    sign_flip,
    student_tail,
    weakest,
)
from saccade.metrics import recall
from saccade.tasks.evaluator import Scores
from saccade.tasks.matching.evaluate import Recalls


@pytest.mark.parametrize(
    ("t", "freedom", "p"),  # from printed tables of Student's distribution
    [(12.706205, 1, 0.05), (4.302653, 2, 0.05), (9.924843, 2, 0.01), (2.228139, 10, 0.05), (1.962339, 1000, 0.05)],
)
def test_the_tail_of_students_distribution_is_that_of_the_tables(t: float, freedom: int, p: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(p, rel=1e-5)
    assert student_tail(-t, freedom) == student_tail(t, freedom)


@given(st.floats(0.5, 30), st.floats(0.5, 30), st.floats(0, 1))
def test_the_incomplete_beta_function_is_a_distribution(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) + incomplete_beta(b, a, 1 - x) == pytest.approx(1)
    assert 0 <= incomplete_beta(a, b, x) <= 1 + 1e-12


def test_a_t_test_needs_two_and_knows_when_all_agree() -> None:
    assert paired_t([1.0]) is None
    assert paired_t([2.0, 2.0, 2.0]) == 0.0
    assert paired_t([0.0, 0.0]) == 1.0
    assert paired_t([1.0, 2.0, 3.0]) == pytest.approx(0.0741799, abs=1e-6)


def test_pictures_contributions_add_up_to_the_metric() -> None:
    wanted = recall(toy_table(2.0, 5), owners())
    found = toy_ranks(2.0, 5).scores()
    assert found.figures == pytest.approx(wanted)
    assert found.by_picture.keys() == Recalls.metrics.keys()
    for metric, parts in found.by_picture.items():
        assert parts.sum() == pytest.approx(wanted[metric])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
def test_flipping_signs_gives_the_share_of_all_flips(values: list[int]) -> None:
    by_picture = np.array(values, dtype=float)
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    exact = float(np.mean(np.array(sums) >= abs(sum(values))))
    assert sign_flip(by_picture) == pytest.approx(exact, abs=0.02)


def test_a_clear_difference_is_seen_and_none_is_not_made_up() -> None:
    better = [(seed, toy_ranks(3.0, seed).scores(), toy_ranks(2.0, seed + 10).scores()) for seed in range(3)]
    same = [(seed, toy_ranks(2.0, seed).scores(), toy_ranks(2.0, seed).scores()) for seed in range(3)]
    clear, none = compare("a", "b", better, "rsum"), compare("a", "b", same, "rsum")
    assert clear.verdict == "holds"
    assert clear.p_pictures is not None
    assert clear.p_pictures < 0.001
    assert clear.interval is not None
    assert 0 < clear.interval[0] < clear.mean < clear.interval[1]
    assert (none.mean, none.p_pictures, none.verdict) == (0.0, 1.0, "does not hold")
    turned = compare("b", "a", [(seed, b, a) for seed, a, b in better], "rsum")
    assert turned.verdict == "does not hold"
    assert turned.mean == pytest.approx(-clear.mean)


def test_a_figure_of_the_whole_split_is_judged_over_seeds() -> None:
    """Mean average precision is no sum over pictures: nothing is made up for them."""

    def found(*figures: tuple[float, float]) -> list[tuple[int, Scores, Scores]]:
        return [(seed, *(Scores({"map": value}, {}, {}) for value in pair)) for seed, pair in enumerate(figures)]  # type: ignore[misc]

    steady = compare("a", "b", found((5.0, 4.0), (5.1, 4.0), (5.0, 4.1)), "map")
    assert (steady.p_pictures, steady.interval, steady.verdict) == (None, None, "holds")
    assert steady.p_seeds is not None
    assert steady.p_seeds < 0.05
    shaky = compare("a", "b", found((5.0, 4.9), (7.0, 4.0), (5.0, 4.1)), "map")
    assert shaky.verdict == "holds in direction"
    alone = compare("a", "b", found((5.0, 4.0)), "map")
    assert (alone.verdict, alone.why) == ("undecided", "one seed says nothing about seeds")


def test_a_side_that_still_rose_leaves_the_comparison_undecided() -> None:
    found = [(seed, toy_ranks(3.0, seed).scores(), toy_ranks(2.0, seed).scores()) for seed in range(2)]
    rising = compare("a", "b", found, "rsum", unfinished=["b", "c"])
    assert (rising.verdict, rising.why) == ("undecided", "“b” still rose at the last step")
    assert compare("a", "b", found, "rsum", unfinished=["c"]).verdict == "holds"


def test_seeds_that_were_asked_for_and_are_missing_leave_the_comparison_undecided() -> None:
    found = [(seed, toy_ranks(3.0, seed).scores(), toy_ranks(2.0, seed).scores()) for seed in range(2)]
    part = compare("a", "b", found, "rsum", asked=3)
    assert (part.verdict, part.why) == ("undecided", "2 of 3 seeds are measured")
    assert compare("a", "b", found, "rsum", asked=2).verdict == "holds"


def test_a_plain_figure_is_one_of_the_same_pictures() -> None:
    zero = toy_ranks(2.0, 1).scores().with_figure("rsum", 12.0)
    assert zero.figures == {"rsum": 12.0}
    assert zero.by_picture["rsum"].sum() == pytest.approx(12.0)
    assert zero.by_picture.keys() == {"rsum"}


def test_draws_are_the_same_every_time() -> None:
    values = np.random.default_rng(0).normal(size=50)
    assert sign_flip(values) == sign_flip(values)
    assert bootstrap(values) == bootstrap(values)


@pytest.mark.parametrize(
    ("differences", "p", "verdict"),
    [
        ([1.0, 2.0], 0.01, "holds"),
        ([1.0, 2.0], 0.05, "holds in direction"),
        ([3.0, -1.0], 0.01, "holds in direction"),
        ([0.0, 2.0], 0.01, "holds in direction"),
        ([0.0, 0.0], 1.0, "does not hold"),
        ([-1.0, -2.0], 0.2, "does not hold"),
        ([-3.0, 1.0], 0.01, "does not hold"),
        ([-1.0, -2.0], 0.01, "does not hold"),
    ],
)
def test_the_rule_of_the_page(differences: list[float], p: float, verdict: Verdict) -> None:
    assert judge(differences, p) == verdict


def test_a_claim_is_as_good_as_its_weakest_comparison() -> None:
    assert weakest(["holds", "does not hold", "holds in direction"]) == "does not hold"
    assert weakest(["holds", "undecided"]) == "undecided"
    assert weakest(["undecided", "does not hold"]) == "does not hold"
    assert weakest([]) == "undecided"
