"""The table of answerers: what its rows are read from, and what it says of the floors."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("results_answering")


def test_a_kind_that_one_seed_leaves_near_a_floor_is_named(script: ModuleType) -> None:
    found = {
        "question": [{"accuracy": 40.0, "count": 25.0}],
        "picture": [{"accuracy": 30.0, "count": 31.0}, {"accuracy": 30.0, "count": 33.0}],
        "updown_vqa": [{"accuracy": 70.0, "count": 60.0}, {"accuracy": 51.0, "count": 42.9}],
        "dcn": [{"accuracy": 70.0, "count": 43.0}],
    }
    updown, dcn = script.above_floors(found, ["accuracy", "count"], 10)
    assert updown.endswith("but for count.")
    assert dcn.endswith("of every kind.")


def test_figures_of_answerers_and_of_concept_learners_have_one_name(script: ModuleType, tmp_path: Path) -> None:
    results = {"most frequent": {"accuracy": 1.0, "… count": 2.0}, "run": {"accuracy": 3.0, "accuracy_count": 4.0}}
    results["joint"] = {
        "mean": 5.0,
        "answering_accuracy": 6.0,
        "answering_accuracy_count": 7.0,
        "grounding_accuracy": 8.0,
    }
    (tmp_path / "f.json").write_text(json.dumps({"results": results}))
    assert [list(figures) for figures in script.read_figures(tmp_path / "f.json").values()] == [
        ["accuracy", "count"]
    ] * 3


def test_a_trained_parser_gives_a_row_of_its_own_from_the_same_runs(script: ModuleType, tmp_path: Path) -> None:
    arguments = argparse.Namespace(runs=tmp_path, data="world", split="test", seeds=1, out=tmp_path)
    (tmp_path / "world" / "vcml-0").mkdir(parents=True)
    (tmp_path / "world" / "vcml-0" / "environment.json").write_text('{"device": "cpu"}')
    for name, accuracy in (("vcml", 96.0), ("vcml_parsed", 95.0)):
        figures = {"results": {name: {"accuracy": accuracy}}}
        script.figures_of(name, 0, arguments).write_text(json.dumps(figures))
    found = script.collect(arguments)
    assert found == {"vcml": [{"accuracy": 96.0}], "vcml_parsed": [{"accuracy": 95.0}]}
    assert script.trained_on(arguments, found) == ["cpu"]


def test_rows_whose_runs_are_gone_stay_on_the_page(script: ModuleType, tmp_path: Path) -> None:
    arguments = argparse.Namespace(
        runs=tmp_path, data="world", split="test", seeds=1, out=tmp_path, device="cpu", settings=[]
    )
    old = {"most frequent": [{"accuracy": 38.0}], "updown_vqa": [{"accuracy": 82.0}], "vcml": [{"accuracy": 90.0}]}
    (tmp_path / "answering-world.json").write_text(json.dumps({"device": "a GPU", "results": old}))
    (tmp_path / "world" / "vcml-0").mkdir(parents=True)
    (tmp_path / "world" / "vcml-0" / "environment.json").write_text('{"device": "cpu"}')
    script.figures_of("vcml", 0, arguments).write_text(json.dumps({"results": {"run": {"accuracy": 96.0}}}))
    script.report(arguments)
    written = json.loads((tmp_path / "answering-world.json").read_text())
    assert written["results"] == {**old, "vcml": [{"accuracy": 96.0}]}
    assert written["device"] == "a GPU and cpu"


def test_another_split_has_a_page_of_its_own(script: ModuleType, tmp_path: Path) -> None:
    """DAQUAR's test questions, measured once, leave the table of dev as it is."""
    (tmp_path / "runs" / "daquar").mkdir(parents=True)
    for split, accuracy in {"dev": 24.5, "test": 21.5}.items():
        results = {"results": {"run": {"accuracy": accuracy, "wups_0.9": 30.0}}}
        (tmp_path / "runs" / "daquar" / f"updown_vqa-0.{split}.json").write_text(json.dumps(results))
        script.report(
            argparse.Namespace(
                data="daquar", split=split, seeds=1, device="cpu", runs=tmp_path / "runs", out=tmp_path, settings=[]
            )
        )
    assert "24.5" in (tmp_path / "answering-daquar.md").read_text()
    test = (tmp_path / "answering-daquar-test.md").read_text()
    assert "21.5" in test
    assert "--split test" in test
