"""The table of relations: rows that share a run, and the same model with and without its transfer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_one_run_stands_with_and_without_its_transfer(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script("results_relations")
    arguments = argparse.Namespace(
        runs=tmp_path, data="world", split="novel", seeds=2, device="cpu", out=tmp_path, settings=[], root=None
    )
    (tmp_path / "world").mkdir()
    assert script.figures_of("unmoved", 1, arguments) == script.figures_of("analogy", 1, arguments)
    assert script.run_of("analogy-parts", 1, arguments) == script.run_of("analogy", 1, arguments)
    called: list[list[str]] = []
    monkeypatch.setattr(script, "saccade", lambda words, log: called.append(list(words)) or True)
    for seed in range(2):
        (script.run_of("analogy", seed, arguments) / "last").mkdir(parents=True)
        for name in ("analogy", "unmoved", "analogy-parts"):
            script.measure(name, seed, arguments)
        rows = {"at random": 1.0, "runs/a": 60.0 + 2 * seed, "runs/a without transfer": 50.0}
        kept = {name: {"map": value, "map_unseen": value / 2} for name, value in rows.items()}
        script.figures_of("analogy", seed, arguments).write_text(json.dumps({"results": kept}))
    assert [words[0] for words in called] == ["eval"] * 4  # once with transfer and without, once with other branches
    script.report(arguments)
    page = (tmp_path / "relations-world.md").read_text()
    assert "| pairs of boxes in an order drawn at random | 1.0 | – | – | 0.5 |  |" in page
    assert "| [Analogy](../systems/analogy.md) | 61.0 ± 1.4 | – | – | 30.5 ± 0.7 | 2 |" in page
    assert "| [Analogy](../systems/analogy.md), its transfer left out | 50.0 ± 0.0 | – | – | 25.0 ± 0.0 | 2 |" in page
