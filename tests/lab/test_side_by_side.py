from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from saccade.core.errors import SaccadeError
from saccade.lab.demo import Job, steps_done, train_side_by_side
from saccade.training.run import run_config


def toy_data(folder: Path) -> Path:
    """Four pictures of two regions with a caption each, in SCAN's own format."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for split in ("train", "dev"):
        np.save(folder / f"{split}_ims.npy", rng.normal(size=(4, 2, 6)).astype(np.float32))
        (folder / f"{split}_caps.txt").write_text("a cube\na ball\na robot\na star\n", encoding="utf-8")
    return folder


def jobs(data: Path, out: Path) -> list[Job]:
    words = ["data=precomp", f"root={data}", "dim=8", "word_dim=8", "epochs=1", "batch_size=2", "min_count=1"]
    return [Job(run_config(name, words), out / name, name, 2) for name in ("scan", "vse")]


def test_all_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.lab.demo.cores", lambda: 2)
    train_side_by_side(jobs(toy_data(tmp_path / "data"), tmp_path), Console(quiet=True))
    for name in ("scan", "vse"):
        assert (tmp_path / name / "best" / "model.safetensors").exists()
        assert steps_done(tmp_path / name) == 2


def test_what_one_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.lab.demo.cores", lambda: 2)
    with pytest.raises(SaccadeError, match="is not a folder"):
        train_side_by_side(jobs(tmp_path / "missing", tmp_path), Console(quiet=True))


def test_a_run_that_has_not_begun_is_at_no_step(tmp_path: Path) -> None:
    assert steps_done(tmp_path) == 0
