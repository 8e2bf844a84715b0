"""The tables of clicks: what a page says of its figures, and the log that the memory is shown with."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from saccade.core.files import read_json, write_json
from saccade.data.clicks.log import open_clicks_log
from saccade.training.run import run_config


def test_a_page_has_every_row_at_every_redundancy(load_script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    script = load_script("results_clicks")
    (tmp_path / "world_clicks").mkdir()
    arguments = argparse.Namespace(
        runs=tmp_path, data="world_clicks", split="test", seeds=2, device="cpu", out=tmp_path, settings=[], root=None
    )
    for level in (0.0, 0.5, 1.0):
        for name, base in (("concat", 70.0), ("marn", 70.0 + level)):
            for seed in (0, 1):
                folder = script.place(name, level, seed, arguments)
                own = {"auc": base + seed, "gauc": base - 1, "logloss": 0.5}
                rows = {"constant": {"auc": 50.0, "gauc": 50.0, "logloss": 0.6}, str(folder): own}
                facts = {"impressions": 9600, "users": 200, "results": rows}
                write_json(script.figures_of(folder, "test"), facts)
    script.report(arguments)
    page = (tmp_path / "clicks-world.md").read_text()
    assert "## Redundancy 0.5" in page
    assert "| [MARN](../systems/marn.md) | 71.50 ± 0.71 | 70.00 ± 0.00 | 0.5000 ± 0.0000 | 2 |" in page
    assert "AUC of MARN at redundancy 1: +1.00 to concatenation." in page
    assert "one probability for all" in page
    assert (tmp_path / "clicks-world.png").stat().st_size > 5000
    assert set(read_json(tmp_path / "clicks-world.json")["results"]) == {"0", "0.5", "1"}


def test_every_row_is_a_model_that_can_be_built(load_script: Callable[[str], ModuleType]) -> None:
    script = load_script("results_clicks")
    words = {name: ["data=world_clicks", *own] for name, (_, own) in script.ROWS.items()}
    configs = {name: run_config("marn", own).model for name, own in words.items()}
    assert len(set(map(str, configs.values()))) == len(configs)
    assert configs["din"].sequence == "din"


def test_the_large_log_is_one_that_is_read(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    script = load_script("large_log")
    monkeypatch.setattr(script, "ROWS", 64)
    monkeypatch.setattr(script, "ITEMS", 50)
    (tmp_path / "log").mkdir()
    assert script.write_log(tmp_path / "log" / "train.parquet", 400_000, 1) % 64 == 0
    data = open_clicks_log("train", tmp_path / "log")
    assert len(data.impressions.blocks) > 2
    assert data.catalogue.image is not None
    assert data.catalogue.image.shape[1] == 256
    rows = data.impressions.rows(np.arange(20), 30)
    assert rows.mask.sum(axis=1).tolist() == [20] * 20
    assert (rows.ages[rows.mask] >= 60).all()
