"""The table of grounding: rows that share runs, boxes that need no model, and what a package's model needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from saccade.training.run import run_config


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("results_grounding")


def figures(accuracy: float) -> dict[str, float]:
    own = {"accuracy": accuracy, "accuracy_people": accuracy, "pointing": 50.0, "pointing_people": 50.0}
    return {**own, "accuracy_animals": accuracy, "pointing_animals": 50.0}


def test_rows_of_one_run_stand_beside_what_needs_no_model(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = argparse.Namespace(
        runs=tmp_path, data="flickr8k", split="dev", seeds=2, device="cpu", out=tmp_path, settings=[], root=None
    )
    (tmp_path / "flickr8k").mkdir()
    assert script.run_of("multilevel-boxes", 1, arguments) == script.run_of("multilevel", 1, arguments)
    assert list(script.seeds_of("scan-flickr8k", arguments)) == [0]
    for name, boxes, found in (("multilevel", "windows", 30.0), ("multilevel-boxes", "bottomup@36", 36.0)):
        for seed in range(2):
            rows = {row: figures(20.0) for row in script.BASELINES} | {"run": figures(found + seed)}
            kept = {"results": rows, "phrases": {"people": 3, "animals": 2}, "boxes": boxes}
            script.figures_of(name, seed, arguments).write_text(json.dumps(kept))
    script.report(arguments)
    page = (tmp_path / "grounding-flickr8k.md").read_text()
    assert "5 phrases" in page
    assert "| [multi-level](../systems/multilevel.md) | captions | 30.5 ± " in page
    assert page.count("| a box in the middle |") == 3  # in the table, and by type of pointing and of accuracy
    assert "the largest box, boxes of `bottomup@36`" in page
    assert "people (3)" in page
    for path in tmp_path.rglob("*.json"):  # their runs are gone, and another row is measured
        if path.name != "grounding-flickr8k.json":
            path.unlink()
    rows = {row: figures(20.0) for row in script.BASELINES} | {"run": figures(25.0)}
    script.figures_of("imram", 0, arguments).write_text(json.dumps({"results": rows, "phrases": {"people": 3}}))
    script.report(arguments)
    page = (tmp_path / "grounding-flickr8k.md").read_text()
    assert "| [multi-level](../systems/multilevel.md) | captions | 30.5 ± " in page
    assert "| [IMRAM](../systems/imram.md) | captions | 25.0 |" in page
    assert "5 phrases" in page
    called: list[list[str]] = []
    monkeypatch.setattr(script, "saccade", lambda words, log: called.append(list(words)) or True)
    script.train("scan-flickr8k", 0, arguments)
    script.measure("scan-flickr8k-boxes", 0, arguments)
    assert [words[:4] for words in called] == [["eval", "scan-flickr8k", "--task", "grounding"]]
    assert called[0][called[0].index("--proposals") + 1] == "bottomup@36"


def test_every_matcher_of_photos_reads_the_same_features(script: ModuleType, tmp_path: Path) -> None:
    """No row trains a backbone of its own."""
    for name in ("vse", "vsrn", "camp", "imram", "gsmn"):
        row = script.DATA["flickr8k"][name]
        config = run_config(row.system, ["data=flickr8k", f"root={tmp_path}", *row.settings])
        assert not config.backbone.train, name
        assert config.data.extractor == "grid:tuned:scan-flickr8k@224/8", name
