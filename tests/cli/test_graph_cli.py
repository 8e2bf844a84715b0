"""`saccade graph`: the scene graph of a photo as a tree, JSON and a drawing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from saccade.cli import app
from saccade.core.errors import SaccadeError
from saccade.vision.extractors import PictureGraph, PictureRelation, RegionDescription, RegionExtractor
from saccade.vision.pictures import Picture

REGIONS = (
    RegionDescription((0.0, 0.0, 0.5, 1.0), 0.9, {"kind": "man", "attribute": "old"}, {}),
    RegionDescription((0.5, 0.5, 1.0, 1.0), 0.8, {"kind": "[dog]"}, {}),
    RegionDescription((0.0, 0.0, 1.0, 1.0), 1.0, {}, {}),
)


class Relating(RegionExtractor):
    name, digest, dim = "relating", "", 3
    has_relations = True

    def __init__(self) -> None:
        self.network = nn.Linear(1, 1)

    def graph(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[PictureGraph]:
        return [PictureGraph(REGIONS, (PictureRelation(0, "walking with", 1, 0.7),)) for _ in images]


class Silent(Relating):
    has_relations = False

    def graph(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[PictureGraph]:
        return [PictureGraph(REGIONS) for _ in images]


@pytest.fixture(autouse=True)
def _photo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("saccade.vision.load_extractor", lambda name, device: {"r": Relating, "s": Silent}[name]())
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        Image.new("RGB", (200, 100), "grey").save(name)


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["graph", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_a_tree_a_file_and_a_drawing() -> None:
    assert "man old │ └── walking with [dog]" in run("a.png", "-e", "r")
    run("a.png", "b.png", "-e", "r", "-o", "graphs.json")
    first, second = json.loads(Path("graphs.json").read_text())["pictures"]
    assert second["photo"] == "b.png"
    assert first["objects"][1]["box"] == [100.0, 50.0, 200.0, 100.0]
    assert first["relations"] == [[0, "walking with", 1, 0.7]]
    run("a.png", "-e", "r", "-o", "graph.jpg")
    assert Image.open("graph.jpg").height > 500
    assert "knows no relations" in run("a.png", "-e", "s")


def test_what_cannot_be_written_is_said_before_anything_is_read() -> None:
    for words, sentence in (
        (("a.png", "b.png", "-o", "g.png"), "a drawing shows one photo, there are 2"),
        (("a.png", "-o", "g.txt"), ".json, not .txt"),
        (("c.png",), "c.png"),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            run(*words, "-e", "r")


def test_top_0_is_all_and_top_1_the_surest() -> None:
    assert "dog" in run("a.png", "-e", "r", "--top", "0")
    assert "dog" not in run("a.png", "-e", "r", "--top", "1")
