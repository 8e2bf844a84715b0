from __future__ import annotations

import dataclasses
import json
import math
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from toy_training import ToyModel, ToyTask, same_weights, toy_config, toy_model

from saccade.core.config import from_dict, override
from saccade.core.errors import SaccadeError
from saccade.training import FitResult, Trainer, TrainerConfig
from saccade.training.seeds import BatchSampler, seed_everything


def fit(
    folder: Path, task: Any = None, model: nn.Module | None = None, resume: bool = False, **settings: Any
) -> tuple[nn.Module, FitResult]:
    model = model or toy_model()
    trainer = Trainer(toy_config(**settings), folder, Console(file=StringIO()), extra={"task": "toy"})
    return model, trainer.fit(model, task or ToyTask(), resume)


def test_a_run_learns_and_leaves_its_folder_complete(tmp_path: Path) -> None:
    model, result = fit(tmp_path / "run", epochs=8)
    assert result.best["accuracy"] > 0.7  # chance is about 1/3
    assert (result.steps, result.stopped_early) == (64, False)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"environment.json", "metrics.csv", "tensorboard", "last.ckpt", "best", "last"}
    assert same_weights(torch.load(tmp_path / "run/last/model.pt"), model.state_dict())
    best = toy_model()
    best.load_state_dict(torch.load(tmp_path / "run/best/model.pt"))
    with torch.no_grad():
        assert ToyTask().evaluate(best.eval()) == result.best
    environment = json.loads((tmp_path / "run/environment.json").read_text())
    assert environment["torch"] == torch.__version__
    assert environment["task"] == "toy"


def test_training_equals_a_loop_written_by_hand(tmp_path: Path) -> None:
    """Adam, clipping by the global norm and the step schedule, bit by bit."""
    model, _ = fit(tmp_path, epochs=3, decay_every=1, decay=0.5, clip_norm=0.3)
    other, task, sampler = toy_model(), ToyTask(), BatchSampler(70, 8, seed=0)
    seed_everything(0)
    optimiser = torch.optim.Adam(other.parameters(), lr=1e-2)
    for step in range(24):
        optimiser.param_groups[0]["lr"] = 1e-2 * 0.5 ** (step // 8)
        optimiser.zero_grad()
        task.loss(other, task.batch(sampler.indices(step)), step)[0].backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.3)
        optimiser.step()
    assert same_weights(model.state_dict(), other.state_dict())


@pytest.mark.parametrize("change", [{"prefetch": 0}, {"prefetch": 5}, {"evaluate_every": 3}, {"checkpoint_every": 2}])
def test_what_should_not_touch_the_weights_does_not(tmp_path: Path, change: dict[str, int]) -> None:
    expected, _ = fit(tmp_path / "plain")
    model, _ = fit(tmp_path / "changed", **change)
    assert same_weights(model.state_dict(), expected.state_dict())


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_a_finished_run_can_be_made_longer(tmp_path: Path, optimiser: str) -> None:
    expected, straight = fit(tmp_path / "straight", epochs=4, optimiser=optimiser)
    fit(tmp_path / "longer", epochs=2, optimiser=optimiser)
    model, result = fit(tmp_path / "longer", epochs=4, optimiser=optimiser, model=toy_model(seed=9), resume=True)
    assert same_weights(model.state_dict(), expected.state_dict())
    assert dataclasses.replace(result, seconds=0) == dataclasses.replace(straight, seconds=0)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    model, first = fit(tmp_path)
    checkpoint = (tmp_path / "last.ckpt").read_bytes()
    again, second = fit(tmp_path, model=toy_model(seed=9), resume=True)
    assert first == second
    assert same_weights(model.state_dict(), again.state_dict())
    assert (tmp_path / "last.ckpt").read_bytes() == checkpoint


class Scripted(ToyTask):
    """Reports the accuracies it is given, one per evaluation."""

    def __init__(self, *figures: float) -> None:
        super().__init__()
        self.figures = list(figures)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"accuracy": self.figures.pop(0)}


def test_patience_counts_evaluations_without_a_new_best(tmp_path: Path) -> None:
    """An equal metric is no new best, and neither is one that is not a number."""
    task = Scripted(0.1, 0.3, 0.2, math.nan, 0.4, 0.4, 0.3, 0.2, 0.9)
    _, result = fit(tmp_path, task, epochs=100, evaluate_every=2, patience=3)
    assert (result.best["accuracy"], result.best_step, result.steps) == (0.4, 10, 16)
    assert result.stopped_early
    assert result.last["accuracy"] == 0.2
    assert task.figures == [0.9]
    _, again = fit(tmp_path, task, epochs=100, evaluate_every=2, patience=3, resume=True)
    assert again == result


def test_patience_is_not_lost_before_its_step(tmp_path: Path) -> None:
    """Stages that come first may leave the metric where it is; a curve that ends flat at the last step is flat too."""
    _, result = fit(tmp_path, Scripted(0, 0, 0, 0, 0.1, 0, 0), steps=14, evaluate_every=2, patience=2, patience_from=8)
    assert (result.best_step, result.steps, result.stopped_early) == (10, 14, True)


def test_steps_take_the_place_of_epochs_and_the_end_is_evaluated(tmp_path: Path) -> None:
    _, result = fit(tmp_path, steps=5)
    assert result.steps == 5
    assert result.last


def test_the_gradient_is_cut_to_the_norm(tmp_path: Path) -> None:
    """A first SGD step moves the weights by learning rate × clip norm when the gradient is larger."""
    model, before = toy_model(), toy_model()
    settings = {"optimiser": "sgd", "learning_rate": 0.5, "clip_norm": 0.01, "steps": 1}
    fit(tmp_path, model=model, **settings)
    moved = torch.cat([(a - b).flatten() for a, b in zip(model.parameters(), before.parameters(), strict=True)])
    assert moved.norm().item() == pytest.approx(0.005, rel=1e-3)


def test_bf16_runs_the_loss_and_the_evaluation_under_autocast_and_keeps_float32_weights(tmp_path: Path) -> None:
    seen = set()

    class Watching(ToyTask):
        def loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, dict[str, float]]:
            seen.add(model.classify(batch.values).dtype)  # type: ignore[operator]
            return super().loss(model, batch, step)

        def evaluate(self, model: nn.Module) -> dict[str, float]:
            seen.add(model.classify(self.values).dtype)  # type: ignore[operator]
            return super().evaluate(model)

    model, _ = fit(tmp_path, Watching(), precision="bf16", steps=3)
    assert seen == {torch.bfloat16}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run_and_saves_nothing(tmp_path: Path, where: str) -> None:
    class Breaking(ToyTask):
        count = 0

        def loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, dict[str, float]]:
            loss, figures = super().loss(model, batch, step)
            self.count += 1
            if self.count == 13:
                zero = (loss - loss.detach()).clamp(min=0)
                loss = loss * math.nan if where == "loss" else loss + zero.sqrt()
            return loss, figures

    with pytest.raises(SaccadeError, match=f"the {where} is (nan|not finite) at step 13 .*keeps what it held before"):
        fit(tmp_path, Breaking(), checkpoint_every=4)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["progress"]["step"] == 12
    assert not (tmp_path / "last").exists()


def test_a_metric_to_select_by_must_be_among_the_metrics(tmp_path: Path) -> None:
    task = ToyTask()
    task.selection = "rsum"
    with pytest.raises(SaccadeError, match='no metric "rsum" to select by, only accuracy'):
        fit(tmp_path, task)


def test_a_model_without_weights_to_train_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="ToyModel has no weights to train"):
        fit(tmp_path, model=ToyModel().requires_grad_(False))


def test_frozen_weights_stay_as_they_are(tmp_path: Path) -> None:
    model = toy_model()
    model.inner.requires_grad_(False)
    fit(tmp_path, model=model)
    assert torch.equal(model.inner.weight, toy_model().inner.weight)
    assert not torch.equal(model.outer.weight, toy_model().outer.weight)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("batch_size=0", "batch_size must be at least 1, not 0"),
        ("steps=0", "steps must be at least 1, not 0"),
        ("learning_rate=-1", "learning_rate must be more than zero, not -1"),
        ("decay=2", "decay must be more than 0 and at most 1, not 2"),
        ("clip_norm=-1", "clip_norm must be zero or more, not -1"),
        ("strategy=deepspeed", "strategy must be auto, ddp"),
        ("accumulate=0", "accumulate must be at least 1"),
        ("optimiser=adamm", "optimiser must be one of adam, adamax, adamw, sgd"),
        ("patiense=3", 'no setting "patiense"; did you mean "patience"'),
    ],
)
def test_a_bad_setting_is_named(word: str, sentence: str) -> None:
    with pytest.raises(SaccadeError, match=sentence):
        override(TrainerConfig(), [word])


def test_settings_survive_yaml_values() -> None:
    config = TrainerConfig(steps=7, schedule="cosine")
    assert from_dict(TrainerConfig, dataclasses.asdict(config)) == config
