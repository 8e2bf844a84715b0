"""The running average of the weights: its formula, and that it is what is evaluated, saved and resumed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from toy_training import Points, ToyModel, ToyTask, same_weights, toy_config, toy_model

from saccade.core.errors import SaccadeError
from saccade.training import Trainer
from saccade.training.optimiser import RunningAverage

State = dict[str, Tensor]


class Watching(ToyTask):
    """Takes down the weights before each step, and those it is asked to evaluate."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[State] = []
        self.evaluated: list[State] = []

    def loss(self, model: nn.Module, batch: Points, step: int) -> tuple[Tensor, dict[str, float]]:
        self.before.append(taken(model))
        return super().loss(model, batch, step)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        self.evaluated.append(taken(model))
        return super().evaluate(model)


def taken(model: nn.Module) -> State:
    return {name: value.clone() for name, value in model.state_dict().items()}


def averages(weights: list[State], decay: float, averaged: set[str]) -> list[State]:
    """By the formula, in float64: what the average is after each step; what is not averaged is the newest."""
    mean = {name: value.double() for name, value in weights[0].items()}
    found = []
    for step, now in enumerate(weights[1:]):
        d = min(decay, (1 + step) / (10 + step))
        mean = {k: d * mean[k] + (1 - d) * now[k].double() if k in averaged else now[k].double() for k in mean}
        found.append(mean)
    return found


def train(folder: Path, model: ToyModel, task: ToyTask, resume: bool = False, **settings: object) -> None:
    Trainer(toy_config(**settings), folder, Console(file=StringIO())).fit(model, task, resume)


def assert_near(state: State, expected: State) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(state[name].double(), value, rtol=1e-5, atol=1e-6)


def test_the_average_by_the_formula() -> None:
    source = toy_model()
    average = RunningAverage(source, decay=0.6)
    weights = [taken(source)]
    for step in range(20):  # beyond the step where 0.6 is reached
        with torch.no_grad():
            for value in source.parameters():
                value.add_(torch.randn_like(value))
            source.norm.running_mean.add_(1.0)  # type: ignore[union-attr,operator]
        average.update(step)
        weights.append(taken(source))
    expected = averages(weights, 0.6, {name for name, _ in source.named_parameters()})
    assert_near(taken(average.model), expected[-1])
    assert same_weights(taken(source), weights[-1])
    assert not any(p.requires_grad for p in average.model.parameters())


def test_the_average_is_what_is_evaluated_and_saved(tmp_path: Path) -> None:
    model, task = toy_model(), Watching()
    train(tmp_path, model, task, average=0.9, evaluate_every=3, steps=14)
    names = {name for name, _ in model.named_parameters()}
    expected = averages([*task.before, taken(model)], 0.9, names)
    evaluated = [3, 6, 9, 12, 14]
    assert len(task.evaluated) == len(evaluated)
    for state, step in zip(task.evaluated, evaluated, strict=True):
        assert_near(state, expected[step - 1])
    best = torch.load(tmp_path / "last.ckpt", weights_only=True)["progress"]["best_step"]
    assert same_weights(torch.load(tmp_path / "best" / "model.pt"), task.evaluated[evaluated.index(best)])
    assert same_weights(torch.load(tmp_path / "last" / "model.pt"), task.evaluated[-1])
    assert not same_weights(taken(model), task.evaluated[-1])  # the model is left with the weights of its last step


def test_averaging_does_not_change_what_is_averaged(tmp_path: Path) -> None:
    plain, averaged = toy_model(), toy_model()
    train(tmp_path / "plain", plain, ToyTask())
    train(tmp_path / "averaged", averaged, ToyTask(), average=0.9)
    assert same_weights(taken(plain), taken(averaged))
    assert "average" not in torch.load(tmp_path / "plain" / "last.ckpt", weights_only=True)


@pytest.mark.parametrize("stops", [(1, 4), (7,)])
def test_a_run_that_was_stopped_has_the_same_average(tmp_path: Path, stops: tuple[int, ...]) -> None:
    settings = {"average": 0.9, "evaluate_every": 1, "schedule": "constant"}
    straight = toy_model()
    train(tmp_path / "straight", straight, ToyTask(), steps=12, **settings)
    for number, steps in enumerate((*stops, 12)):
        stopped = toy_model(seed=1 if number == 0 else 9)  # when resumed, the checkpoint brings the weights
        train(tmp_path / "stopped", stopped, ToyTask(), resume=number > 0, steps=steps, **settings)
    assert same_weights(taken(straight), taken(stopped))
    for name in ("best", "last"):
        one, other = (torch.load(tmp_path / run / name / "model.pt") for run in ("straight", "stopped"))
        assert same_weights(one, other)


def test_another_average_is_another_run(tmp_path: Path) -> None:
    train(tmp_path, toy_model(), ToyTask(), steps=2, average=0.9)
    with pytest.raises(SaccadeError, match=r"was trained with average=0\.9 and cannot be resumed with average=0\.0"):
        train(tmp_path, toy_model(), ToyTask(), resume=True, steps=4)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_decays_that_cannot_be(decay: float) -> None:
    with pytest.raises(SaccadeError, match="average must be at least 0 and less than 1"):
        toy_config(average=decay)
