"""A task is a folder: a new one, without pictures or words, is trained like any other."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from toy_training import Points, ToyTask

from saccade import tasks
from saccade.core.files import read_json
from saccade.models.base import model as registry
from saccade.models.base.model import Model
from saccade.tasks.base import TaskSpec
from saccade.tasks.evaluator import Evaluator
from saccade.tasks.predict import Predictor
from saccade.tasks.prepare import Prepared
from saccade.training.run import load_run_config, run_config, train_run


@dataclass(frozen=True)
class SlopeConfig:
    inputs: int = 1  # follows from the data


class Slope(Model):
    """A line through points: it reads no words and sees no pictures."""

    Config = SlopeConfig

    def __init__(self, config: SlopeConfig) -> None:
        super().__init__(config, None)  # type: ignore[arg-type]
        self.layer = nn.Linear(config.inputs, 3)

    def classify(self, values: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(values))

    def _save_pretrained(self, save_directory: Path) -> None:
        torch.save(self.state_dict(), Path(save_directory) / "model.pt")


@dataclass(frozen=True)
class SlopeSettings:
    count: int = 24


class NoEvaluator(Evaluator[Any, Any]):
    def evaluate(self, model: Any, data: Any, settings: Any) -> dict[str, float]:
        raise NotImplementedError

    compare = measure = evaluate  # type: ignore[assignment]


def open_points(config: Any, split: str, pixels: int | None = None, device: str = "cpu") -> Points:
    task = ToyTask(24)
    return Points(task.values, task.labels)


@pytest.fixture
def slope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder `tasks/slopes` and the system `slope`."""
    spec: TaskSpec[Slope, Points] = TaskSpec(
        name="slopes",
        noun="slope",
        does="tells points apart",
        protocol=Slope,
        config=SlopeSettings,
        open=open_points,
        prepare=lambda points, settings: Prepared(
            widths={"inputs": points.values.shape[1]}, labels=("a", "b", "c"), facts={"labels": 3}
        ),
        task=lambda model, train, dev, settings, vary: ToyTask(settings.count),
        evaluator=NoEvaluator(),
        predictor=Predictor,
        verbs=("tell",),
        options=SlopeSettings,
        build=lambda kind, config, prepared: kind(dataclasses.replace(config, **prepared.widths)),
    )
    (tmp_path / "tasks" / "slopes").mkdir(parents=True)
    (tmp_path / "tasks" / "slopes" / "task.py").touch()
    module = ModuleType("saccade.tasks.slopes.task")
    module.SPEC = spec  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "saccade.tasks.slopes.task", module)
    monkeypatch.setitem(sys.modules, "saccade.tasks.slopes", ModuleType("saccade.tasks.slopes"))
    monkeypatch.setattr(tasks, "FOLDER", tmp_path / "tasks")
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    registry.register("slope", task="slopes", title="Slopes", venue="here")(Slope)


def test_a_task_of_one_folder_without_texts_is_trained_and_resumed(slope: None, tmp_path: Path) -> None:
    console = Console(file=StringIO())
    words = ["batch_size=4", "accelerator=cpu", "learning_rate=0.05", "count=20", "epochs=2"]
    run = run_config("slope", words)
    straight = train_run(run, tmp_path / "straight", console=console)
    train_run(run_config("slope", [*words, "epochs=1"]), tmp_path / "run", console=console)
    resumed = train_run(run, tmp_path / "run", resume=True, console=console)
    assert resumed.last == straight.last
    assert resumed.steps == 10
    assert load_run_config(tmp_path / "run").task == SlopeSettings(20)
    assert read_json(tmp_path / "run" / "environment.json")["labels"] == 3
    weights = torch.load(tmp_path / "run" / "last" / "model.pt", weights_only=True)
    assert weights["layer.weight"].shape == (3, 6)
