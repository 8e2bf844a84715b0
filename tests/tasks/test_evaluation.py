"""A split as each model sees it, and several models averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.models import Matcher, load_model
from saccade.tasks.evaluator import SplitForModels
from saccade.tasks.matching.evaluate import check_weights, ensemble_of
from toy_runs import make_features, make_run


def test_a_way_of_seeing_is_opened_once(tmp_path: Path) -> None:
    features = make_features(tmp_path / "data")
    models = [load_model(make_run(tmp_path / name, features, name), Matcher) for name in ("scan", "vse")]
    split = SplitForModels(DataConfig("precomp", features), "test")
    assert split.regions_for(models[0], "a") is split.regions_for(models[1], "b")


def test_features_of_another_size_or_extractor_are_refused_by_name(tmp_path: Path) -> None:
    model = load_model(make_run(tmp_path / "run", make_features(tmp_path / "data")), Matcher)
    wide = SplitForModels(DataConfig("precomp", make_features(tmp_path / "wide", dim=9)), "test")
    with pytest.raises(SaccadeError, match="runs/mine reads features of 8 numbers, precomp has 9"):
        wide.regions_for(model, "runs/mine")
    model.extractor, model.config = "bottomup@36", type(model.config)(region_dim=256)
    world = SplitForModels(DataConfig("world", pictures=20), "test")
    with pytest.raises(
        SaccadeError, match="mine learned from regions of the extractor bottomup@36, world holds those of world"
    ):
        world.regions_for(model, "mine")


def test_a_raw_mean_keeps_scales_and_weights_count() -> None:
    one, other = np.random.default_rng(0).normal(size=(2, 4, 6))
    np.testing.assert_allclose(ensemble_of([one, 10 * other], raw=True), (one + 10 * other) / 2)
    np.testing.assert_allclose(ensemble_of([one, other], [2, 1], raw=True), (2 * one + other) / 3)
    np.testing.assert_allclose(ensemble_of([one, other], [1, 0]), ensemble_of([one]))
    np.testing.assert_allclose(ensemble_of([one, other], [3, 3]), ensemble_of([one, other]))


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [([1.0], "2 models need 2 weights, not 1"), ([1.0, -1.0], "zero or more"), ([0.0, 0.0], "one above zero")],
)
def test_weights_that_are_none_get_a_sentence(weights: list[float], sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        check_weights(weights, 2)
    with pytest.raises(SaccadeError, match=sentence):
        ensemble_of([np.eye(2), np.eye(2)], weights)
