"""`saccade calibrate`, and what `saccade score` and `saccade explain` say afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Saccade = Callable[..., tuple[int, str, str]]
TINY = ["data=world", "pictures=40", "steps=2", "batch_size=4", "dim=8", "word_dim=4", "accelerator=cpu"]


def test_scores_come_with_probabilities_once_fitted(tmp_path: Path, saccade: Saccade) -> None:
    run, picture = tmp_path / "run", tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8)).save(picture)
    assert saccade("train", "scan", *TINY, "-o", run)[0] == 0
    asked = ["score", picture, "-t", "a red cube", "--model", run, "--json"]
    before = json.loads(saccade(*asked)[1])
    assert "probabilities" not in before[0]
    code, out, _ = saccade("calibrate", run, "-o", tmp_path / "believed.png", "--device", "cpu")
    assert code == 0
    assert "expected calibration error" in out
    assert (tmp_path / "believed.png").stat().st_size > 1000
    curve = json.loads((run / "best" / "calibration.json").read_text())
    after = json.loads(saccade(*asked)[1])
    assert after[0]["scores"] == before[0]["scores"]
    wanted = 1 / (1 + np.exp(-(curve["slope"] * after[0]["scores"][0] + curve["offset"])))
    assert after[0]["probabilities"][0] == pytest.approx(wanted, rel=1e-6)
    assert "%" in saccade(*asked[:-1])[1]
    assert saccade("explain", picture, "a red cube", "--model", run, "-o", tmp_path / "why.png")[0] == 0


def test_what_is_no_matcher_is_refused(tmp_path: Path, saccade: Saccade) -> None:
    code, _, error = saccade("calibrate", tmp_path)
    assert code != 0
    assert "is no model folder" in error
    code, _, error = saccade("calibrate", "a", "b")
    assert "one model is calibrated at a time, not 2" in error


def test_a_damaged_curve_is_one_sentence(tmp_path: Path, saccade: Saccade) -> None:
    run, picture = tmp_path / "run", tmp_path / "a.png"
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(picture)
    assert saccade("train", "scan", *TINY, "-o", run)[0] == 0
    (run / "best" / "calibration.json").write_text('{"slope": "steep", "offset": 0}')
    code, _, error = saccade("score", picture, "-t", "a red cube", "--model", run)
    assert code != 0
    assert "calibration.json" in error
    assert len(error.strip().splitlines()) == 1
