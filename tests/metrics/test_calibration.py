"""Scores become probabilities that can be believed."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.metrics.calibration import Platt, fit_platt, reliability


def drawn(slope: float, offset: float, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, and whether each pair fits with exactly the chance that the curve gives."""
    random = np.random.default_rng(seed)
    scores = random.normal(0.4, 0.2, count)
    return scores, random.random(count) < Platt(slope, offset)(scores)


def test_the_curve_that_made_the_pairs_is_found_again() -> None:
    found = fit_platt(*drawn(12.0, -5.0, 200_000))
    assert found.slope == pytest.approx(12.0, rel=0.02)
    assert found.offset == pytest.approx(-5.0, rel=0.02)


def test_it_is_the_largest_likelihood() -> None:
    scores, fits = drawn(6.0, -2.0, 500)
    found = fit_platt(scores, fits)

    def loss(curve: Platt) -> float:
        chance = curve(scores)
        return float(-np.where(fits, np.log(chance), np.log1p(-chance)).mean())

    for slope in (0.9, 1.1):
        assert loss(found) < loss(Platt(found.slope * slope, found.offset))


def test_scores_of_any_scale_give_the_same_probabilities() -> None:
    scores, fits = drawn(6.0, -2.0, 1000)
    plain, moved = fit_platt(scores, fits), fit_platt(1000 * scores - 7, fits)
    np.testing.assert_allclose(plain(scores), moved(1000 * scores - 7), atol=1e-6)


def test_divided_pairs_have_a_finite_curve() -> None:
    scores = np.concatenate([np.linspace(-1, -0.5, 50), np.linspace(0.5, 1, 50)])
    found = fit_platt(scores, scores > 0)
    assert np.isfinite([found.slope, found.offset]).all()
    assert found(np.array([-0.5]))[0] < 0.1 < 0.9 < found(np.array([0.5]))[0]


def test_the_error_of_a_true_curve_is_small_and_of_a_sure_liar_large() -> None:
    scores, fits = drawn(6.0, -2.0, 50_000)
    assert reliability(Platt(6.0, -2.0)(scores), fits).error < 0.01
    assert reliability(Platt(60.0, -20.0)(scores), fits).error > 0.1


def test_the_error_by_hand() -> None:
    found = reliability(np.array([0.1, 0.3, 0.9, 1.0]), np.array([False, True, True, True]), bins=2)
    np.testing.assert_allclose(found.confidence, [0.2, 0.95])
    np.testing.assert_allclose(found.rate, [0.5, 1.0])
    assert found.error == pytest.approx((2 * 0.3 + 2 * 0.05) / 4)


@pytest.mark.parametrize(
    ("scores", "fits"),
    [([0.1, np.nan], [True, False]), ([0.1, 0.2], [True, True]), ([0.3, 0.3], [True, False])],
)
def test_what_cannot_be_fitted_is_refused(scores: list[float], fits: list[bool]) -> None:
    with pytest.raises(SaccadeError):
        fit_platt(np.array(scores), np.array(fits))
