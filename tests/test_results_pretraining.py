"""The tables of pre-training: what is trained before what, and what a page says of its figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from saccade.core.files import read_json, write_json
from saccade.training.run import run_config


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("results_pretraining")


def test_a_run_is_trained_after_what_it_starts_from(script: ModuleType) -> None:
    for rows in script.DATA.values():
        place = {name: n for n, wave in enumerate(script.waves(rows, list(rows))) for name in wave}
        assert place.keys() == rows.keys()
        for name, row in rows.items():
            assert all(place[other] < place[name] for other in row.needs)
    assert list(script.waves(script.FLICKR8K, ["pixelbert-rerank"])) == [
        ["scan", "pixelbert-world"],
        ["pixelbert-pre"],
        ["pixelbert"],
        ["pixelbert-rerank"],
    ]
    taught = script.FLICKR8K["interbert-taught"]
    assert (taught.after, taught.teacher) == ("interbert-pre", "scan")


@pytest.mark.parametrize("jobs", [1, 4])
def test_runs_begin_when_what_they_start_from_is_there(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int
) -> None:
    arguments = argparse.Namespace(data="flickr8k", seeds=2, jobs=jobs, runs=tmp_path)
    trained: list[tuple[str, int]] = []
    measured: list[tuple[str, int]] = []

    def train(name: str, seed: int, _: argparse.Namespace) -> None:
        assert all((other, seed) in trained for other in script.FLICKR8K[name].needs)
        trained.append((name, seed))

    def measure(name: str, seed: int, _: argparse.Namespace) -> None:
        assert (name, seed) in trained
        measured.append((name, seed))

    monkeypatch.setattr(script, "train", train)
    monkeypatch.setattr(script, "measure", measure)
    script.run_all(script.FLICKR8K, ["pixelbert-rerank", "scan"], arguments)
    needed = {"scan", "pixelbert-world", "pixelbert-pre", "pixelbert", "pixelbert-rerank"}
    assert set(trained) == {(name, seed) for name in needed for seed in range(2)}
    assert set(measured) == {(name, seed) for name in ("pixelbert-rerank", "scan") for seed in range(2)}


def test_every_row_is_a_command_that_is_understood(script: ModuleType) -> None:
    for data, rows in script.DATA.items():
        for row in rows.values():
            if row.first is None:
                config = run_config(row.words[1], [*row.words[2:], f"data={row.data or data}"])
                assert config.data.name == (row.data or data)
    world = script.FLICKR8K["pixelbert-world"]
    config = run_config("pixelbert", [*world.words[2:], "data=world"])
    assert (config.model.dim, config.model.used_pieces, config.backbone.train) == (384, False, True)


def test_a_page_has_a_table_for_each_question(script: ModuleType, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    out.mkdir()
    given = {"data": "flickr8k", "split": "dev", "seeds": 2, "runs": runs, "out": out, "root": None, "device": "cpu"}
    arguments = argparse.Namespace(**given, settings=[])
    recalls = dict.fromkeys(script.RECALLS, 10.0)
    labels = dict.fromkeys(script.ACCURACIES, 40.0)
    for seed in range(2):
        scan, reader = (script.run_of(name, seed, arguments) for name in ("scan", "interbert"))
        better = {key: value + 4 * seed for key, value in recalls.items()}
        files = {
            "scan": {"chance": recalls, "run": better},
            "interbert-rerank": {
                "chance": recalls,
                str(scan): better,
                "perfect order, best 8": better,
                f"{reader}, best 8": better,
                f"{reader} + 3 × {scan}, best 8": better,
            },
            "taught-shipped": {"chance": recalls, "scan-flickr8k": better, "perfect order, best 8": better},
            "interbert-entails": {"most frequent": labels, "run": {**labels, "accuracy": 70.0}},
        }
        for name, results in files.items():
            write_json(script.figures_of(name, seed, arguments), {"results": results})
    script.report(arguments)
    page = (out / "pretraining-flickr8k.md").read_text(encoding="utf-8")
    for line in (
        "| by chance | 10.0 |",
        "| 12.0 ± 2.8 | 2 |",
        "| [SCAN](../systems/scan.md) on those cells | 12.0 ± 2.8 |",
        "| perfect order: the best 8 of SCAN | 12.0 ± 2.8 |",
        "| [InterBERT](../systems/interbert.md): the best 8 of SCAN | 12.0 ± 2.8 |",
        "| [InterBERT](../systems/interbert.md) + 3 × SCAN: the best 8 of SCAN | 12.0 ± 2.8 |",
        "| the package's SCAN | 12.0 ± 2.8 |",
        "| perfect order: the best 8 of the package's SCAN | 12.0 ± 2.8 |",
        "| the most frequent label | 40.0 |",
        "| [InterBERT](../systems/interbert.md) | 70.0",
    ):
        assert line in page, line
    assert set(read_json(out / "pretraining-flickr8k.json")["results"]) == {"retrieval", "entailment"}

    (arguments.runs / "flickr8k" / "scan-0.dev.json").unlink()
    (arguments.runs / "flickr8k" / "scan-1.dev.json").unlink()
    script.report(arguments)
    assert (out / "pretraining-flickr8k.md").read_text(encoding="utf-8") == page  # as the page had them
