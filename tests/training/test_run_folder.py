from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn
from toy_training import ToyModel, ToyTask, toy_config, toy_model

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.training import RunFolder, Trainer, differing_key


def fit(folder: Path, model: nn.Module | None = None, task: Any = None, resume: bool = False, **settings: Any) -> str:
    """Train, and return what was printed."""
    console = Console(file=StringIO(), width=300)
    Trainer(toy_config(**settings), folder, console).fit(model or toy_model(), task or ToyTask(), resume)
    shown: str = console.file.getvalue()  # type: ignore[attr-defined]
    return shown


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    fit(folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_an_earlier_run_is_not_written_over(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(SaccadeError, match="run already holds a run: resume it, or choose another folder"):
        fit(run)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_folder_with_the_callers_config_is_free(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: scan\n")
    fit(tmp_path, steps=1)
    assert (tmp_path / "config.yaml").read_text() == "model: scan\n"


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(SaccadeError, match="run is a file, a folder for the run was expected"):
        RunFolder(tmp_path / "run").check(resume=False)


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked(), pytest.raises(SaccadeError, match="in use: another process is training there"):
        fit(tmp_path)
    fit(tmp_path, steps=1)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    """In the middle of a weight, where only a checksum can tell."""
    weight = torch.load(path, weights_only=True)["model"]["inner.weight"].numpy().tobytes()
    values = bytearray(path.read_bytes())
    values[values.index(weight) + len(weight) // 2] ^= 1
    path.write_bytes(values)


def put_text(path: Path) -> None:
    path.write_text("hello")


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, put_text])
def test_a_damaged_checkpoint_is_named(run: Path, damage: Callable[[Path], None]) -> None:
    damage(run / "last.ckpt")
    with pytest.raises(SaccadeError, match=r"last\.ckpt is damaged or cut short"):
        fit(run, resume=True)


def test_a_checkpoint_that_would_run_code_is_not_loaded(run: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (run / "harm",))

    torch.save({"format": Harmful()}, run / "last.ckpt")
    with pytest.raises(SaccadeError, match=r"last\.ckpt is damaged"):
        fit(run, resume=True)
    assert not (run / "harm").exists()


def test_another_file_or_format_is_named(run: Path) -> None:
    values = torch.load(run / "last.ckpt", weights_only=True)
    torch.save({**values, "format": 99}, run / "last.ckpt")
    with pytest.raises(SaccadeError, match=r"last\.ckpt has checkpoint format 99, this version reads format 2"):
        fit(run, resume=True)
    torch.save(values["model"], run / "last.ckpt")
    with pytest.raises(SaccadeError, match=r"last\.ckpt is not a checkpoint of this trainer"):
        fit(run, resume=True)


def test_a_checkpoint_of_another_model_is_named(run: Path) -> None:
    with pytest.raises(
        SaccadeError, match=r'another model: its weight "inner.weight" has shape \[16, 6\], not \[9, 6\]'
    ):
        fit(run, ToyModel(hidden=9), resume=True)
    larger, smaller = toy_model(), toy_model()
    larger.extra = nn.Linear(2, 2)
    with pytest.raises(SaccadeError, match=r'another model: it has no weight "extra\.weight"'):
        fit(run, larger, resume=True)
    smaller.norm = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(SaccadeError, match=r'another model: its weight "norm\.weight" has no place in this one'):
        fit(run, smaller, resume=True)


def test_other_settings_or_data_are_named(run: Path) -> None:
    with pytest.raises(
        SaccadeError, match=r"trained with learning_rate=0\.01 and cannot be resumed with learning_rate=0\.5"
    ):
        fit(run, resume=True, learning_rate=0.5)
    with pytest.raises(SaccadeError, match="trained on 70 items and cannot be resumed on 80: the data has changed"):
        fit(run, task=ToyTask(80), resume=True)
    fit(run, resume=True, epochs=3, log_every=1, prefetch=0, patience=5, checkpoint_every=3)


def test_the_differing_key_of_nested_settings_is_a_path() -> None:
    old = {"model": {"dim": 8, "name": "scan"}, "trainer": {"epochs": 3}}
    assert differing_key(old, {"model": {"dim": 9, "name": "scan"}, "trainer": {"epochs": 4}}) == "model.dim"
    assert differing_key(old, {**old, "trainer": {"epochs": 4}}) is None
    assert differing_key(old, {**old, "seed": 1}) == "seed"


def test_a_changed_environment_is_mentioned(run: Path) -> None:
    write_json(run / "environment.json", {**read_json(run / "environment.json"), "torch": "1.0"})
    assert f"torch was 1.0, is {torch.__version__}: the result may differ" in fit(run, resume=True)
    assert "was" not in fit(run, resume=True)


@pytest.mark.parametrize("what", ["checkpoint", "model"])
def test_a_full_disk_is_a_sentence_and_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """PyTorch and safetensors each wrap the system's error in their own way."""

    def full(*_: object) -> None:
        if what == "model":
            raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            raise RuntimeError("[enforce fail at inline_container.cc:672]") from None

    fit(tmp_path, steps=8)
    before = (tmp_path / "last.ckpt").read_bytes()
    if what == "checkpoint":
        monkeypatch.setattr(torch, "save", full)
        monkeypatch.setattr(ToyModel, "save_pretrained", lambda *_: None)
    else:
        monkeypatch.setattr(ToyModel, "save_pretrained", full)
    with pytest.raises(SaccadeError, match=r"the disk is full: could not write .*(last\.ckpt|best|last)"):
        fit(tmp_path, steps=16, resume=True)
    assert (tmp_path / "last.ckpt").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
