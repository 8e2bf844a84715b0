"""The recipe of the world's extractor, in small: it runs from world to weights, and its loss falls."""

from __future__ import annotations

import dataclasses
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from saccade.vision.detectors.world import load_world_extractor

RECIPE = Path(__file__).parents[2] / "recipes" / "world_extractor.py"


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return runpy.run_path(str(RECIPE))


def test_the_recipe_runs_from_world_to_weights(
    recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    small = dataclasses.replace(recipe["world_config"](), channels=(8, 12, 16, 16), map_dim=16, roi_dim=16, hidden=32)
    monkeypatch.setitem(recipe["main"].__globals__, "world_config", lambda: small)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: x -->\nold\n<!-- end of figures -->\nafter\n")
    recipe["main"](
        pictures=60,
        epochs=5,
        batch_size=16,
        rate=5e-3,
        seed=1,
        device="cpu",
        workers=1,
        out=tmp_path / "weights",
        docs=page,
    )
    facts = json.loads((tmp_path / "weights" / "world.json").read_text())
    assert facts["loss"][-1] < 0.85 * facts["loss"][0]
    assert facts["pictures"]["train"] == 48
    assert {"recall", "overlap", "kind", "colour", "size", "material", "all_four"} <= set(facts["figures"]["test"])
    assert facts["command"].startswith("python recipes/world_extractor.py")
    assert load_world_extractor(tmp_path / "weights").config == small
    lines = page.read_text().splitlines()
    assert lines[:2] + lines[-2:] == ["before", "<!-- figures: x -->", "<!-- end of figures -->", "after"]
    assert any(line.startswith("| kind |") for line in lines)
    assert "old" not in lines


def test_labels_of_the_extractor_cover_the_world(recipe: dict[str, Any]) -> None:
    labels = load_world_extractor().config.labels
    assert labels == recipe["world_config"]().labels
