"""A matcher's scores as probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.tasks.matching.calibration import calibrate


def table(gain: float, images: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    owner = np.repeat(np.arange(images), 5)
    scores = random.normal(0.2, 0.1, (images, 5 * images))
    scores[owner, np.arange(5 * images)] += gain
    return scores, owner


def test_pairs_that_fit_are_likelier_and_the_curve_can_be_believed() -> None:
    scores, owner = table(0.2)
    found = calibrate(scores, owner)
    assert found.pairs == 2 * len(owner)
    assert found.curve(np.array(0.5)) > 0.9 > 0.1 > found.curve(np.array(0.1))
    assert found.held_out.error < 0.08


def test_scores_that_know_nothing_give_one_half() -> None:
    found = calibrate(*table(0.0))
    np.testing.assert_allclose(found.curve(np.linspace(0, 0.4, 5)), 0.5, atol=0.15)


def test_the_same_seed_gives_the_same_curve() -> None:
    assert calibrate(*table(0.1)).curve == calibrate(*table(0.1)).curve


def test_too_few_pictures_are_refused() -> None:
    with pytest.raises(SaccadeError, match="four pictures or more, not 3"):
        calibrate(*table(0.1, images=3))
