"""The demo from end to end, on a small world whose regions are the truth (no extractor), so that it takes seconds."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from PIL import Image

from saccade.batch import RegionBatch
from saccade.cli.lab import demo
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages, DataConfig
from saccade.lab import demo as lab_demo
from saccade.lab.demo import make_room
from saccade.search import Index, Searcher
from saccade.search import Query as SearchQuery
from saccade.world import Split, WorldConfig, make_world

QUICK = ["dim=32", "word_dim=16", "epochs=1", "batch_size=32", "min_count=1"]


class TrueRegions:
    """One region per thing, its vector made from its attributes and its box."""

    dim = 36

    def __init__(self, split: Split) -> None:
        self.split, self.ids = split, split.ids

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        features, boxes = [], []
        for i in indices:
            vectors = np.zeros((len(self.split.boxes(i)) + 1, self.dim), np.float32)
            for n, thing in enumerate(self.split.scene(i).things):
                for value in thing.identity:
                    vectors[n, crc32(value.encode()) % 32] += 1
                vectors[n, 32:] = self.split.boxes(i)[n]
            features.append(vectors)
            boxes.append(np.concatenate([self.split.boxes(i), [[0, 0, 1, 1]]]).astype(np.float32))
        return RegionBatch.of(features, boxes)


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Worlds of few pictures in a folder of their own."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))

    def small(pictures: int = 60, seed: int = 0) -> WorldConfig:
        return WorldConfig(pictures=pictures, seed=seed, size=48, hard_groups=8, novel=0)

    def open_split(config: DataConfig, name: str, pixels: int | None = None) -> CaptionedImages:
        split = make_world(small(config.pictures, config.seed)).split(name)
        texts = [(i, c.text) for i in range(len(split)) for c in split.captions(i)]
        owners = np.array([i for i, _ in texts])
        return CaptionedImages("world", name, TrueRegions(split), tuple(t for _, t in texts), owners)

    monkeypatch.setattr(lab_demo, "WorldConfig", small)
    monkeypatch.setattr(lab_demo, "open_split", open_split)
    monkeypatch.setattr("saccade.tasks.pairs.open_split", open_split)
    monkeypatch.setattr("saccade.lab.demo.cores", lambda: 1)  # in this process, where the above holds


def test_the_demo_leaves_a_report_with_strips_and_models(
    small_world: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my demo's"
    demo(QUICK, out=out, pictures=120, seed=0)
    page = (out / "report.html").read_text()
    assert page.count('class="match"') == 10
    assert page.count('class="twin"') >= 1
    assert page.count("<tr class=") >= 3
    assert (out / "report.html").stat().st_size < 6e6
    assert len(list((out / "strips").glob("*.png"))) == 10
    with Image.open(out / "pictures" / "01.png") as picture:
        assert picture.size == (48, 48)
    for system in ("scan", "vse"):
        assert (out / "models" / system / "best" / "model.safetensors").exists()
    with Index.open(out / "index") as index:
        assert len(index) == len(list((out / "world").rglob("*.png"))) >= 20
        found = Searcher(index).search(SearchQuery("a red cube", top=3))
        assert len(found.hits) == 3
        assert index.thumbnail(found.hits[0].id)[:2] == b"\xff\xd8"
    printed = capsys.readouterr().out
    assert all(f"{n}/6" in printed for n in range(1, 7))
    assert "recall@1" in printed
    commands = [shlex.split(html.unescape(found)) for found in re.findall(r"<code>(.*?)</code>", page)]
    assert all(command[0] == "saccade" for command in commands)
    named = [Path(word) for command in commands for word in command if word.startswith(str(tmp_path))]
    assert len(named) == 7
    assert all(path.exists() for path in named)


def test_an_earlier_demo_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    for name in ("strips/old.png", "models/scan/config.yaml", "report.html", "demo.json", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    make_room(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo.json", "notes.txt"]


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "strips").mkdir()
    with pytest.raises(SaccadeError, match="not a demo's"):
        demo(QUICK, out=tmp_path, pictures=120, seed=0)
    assert (tmp_path / "strips").exists()
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SaccadeError, match="is a file"):
        demo(QUICK, out=file, pictures=120, seed=0)


def test_a_misspelt_setting_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match='did you mean "epochs"'):
        demo(["epoch=1"], out=tmp_path / "demo", pictures=120, seed=0)
    assert list(tmp_path.iterdir()) == []
