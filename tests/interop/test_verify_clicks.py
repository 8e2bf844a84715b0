"""MARN's golden: folders of other sizes and options hold, what a folder says of itself is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marn_golden import write_marn
from saccade.core.errors import SaccadeError
from saccade.interop import GOLDENS


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"widths": (2, 9), "items": 2, "d": 7, "dc": 4, "dh": 6, "dp": 1, "grl": 0.0},
        {"widths": (1, 2, 3, 4, 5), "items": 9, "seed": 3, "clicked": 0, "lam": 0.0},
        {"invariant": "sum", "normalise_weights": True, "grl": 2.5, "seed": 4},
    ],
)
def test_a_folder_of_any_sizes_and_options_holds(tmp_path: Path, sizes: dict[str, Any]) -> None:
    write_marn(tmp_path, **sizes)
    (case,) = GOLDENS["marn"].verify(tmp_path)
    assert [stage for stage in case.stages if not stage.holds] == []
    assert len(case.stages) == 29


def test_a_folder_that_says_another_size_fails(tmp_path: Path) -> None:
    write_marn(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"dh": 3}))
    (case,) = GOLDENS["marn"].verify(tmp_path)
    assert [stage.stage for stage in case.stages if not stage.holds] == ["config dh"]


def test_a_folder_without_a_weight_is_told(tmp_path: Path) -> None:
    write_marn(tmp_path)
    with np.load(tmp_path / "golden.npz") as stored:
        kept = {name: value for name, value in stored.items() if name != "param_Uh"}
    np.savez(tmp_path / "golden.npz", **kept)  # type: ignore[arg-type]
    with pytest.raises(SaccadeError, match='has no "param_Uh"'):
        list(GOLDENS["marn"].verify(tmp_path))
