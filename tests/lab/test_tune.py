"""A search for settings: what a stage finds is kept, what is finished is not trained again, Optuna is optional."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_text
from saccade.lab.tune import Plan, Stage, best_words, plan_names, read_plan, search_settings
from saccade.training.run import RunConfig, run_config
from saccade.training.trainer import FitResult

PLAN = Plan(
    "hierarchical",
    (
        Stage("alone", ("task.parts=matching",), {"model.retrieval_layer": (1, 2), "task.matching.rate": (1, 0.5)}),
        Stage("together", (), {"task.matching.share": (1, 2)}),
    ),
)


class Training:
    """Stands for `train_run`: the best has layer 2, half the rate and share 2."""

    def __init__(self, fatal: int = 0) -> None:
        self.seen: list[RunConfig] = []
        self.fatal = fatal

    def __call__(self, config: RunConfig, folder: Path, **_: Any) -> FitResult:
        self.seen.append(config)
        if len(self.seen) == self.fatal:
            raise KeyboardInterrupt
        matching = config.task.matching
        figure = config.model.retrieval_layer - matching.rate + matching.share
        return FitResult({"mean": figure}, 10, {"mean": figure}, 10, 1.0, False, "mean")


def search(out: Path, training: Training, trials: int | None = None) -> list[Any]:
    return search_settings(PLAN, ["data=world"], out, trials, Console(file=StringIO()), training)


def test_each_stage_keeps_what_it_found_and_finished_runs_are_not_trained_again(tmp_path: Path) -> None:
    stopped = Training(fatal=4)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, stopped)
    training = Training()
    done = search(tmp_path, training)
    assert len(training.seen) == 3  # of six, three were finished
    assert [trial.stage for trial in done] == ["alone"] * 4 + ["together"] * 2
    best = ["model.retrieval_layer=2", "task.matching.rate=0.5", "task.matching.share=2"]
    assert best_words(PLAN, done) == best
    for config in training.seen[1:]:
        assert (config.task.parts, config.model.retrieval_layer) == (("matching", "grounding", "answering"), 2)
    again = Training(fatal=1)
    assert search(tmp_path, again) == done
    assert not again.seen
    page = (tmp_path / "results.md").read_text()
    assert "| model.retrieval_layer | task.matching.rate | mean |" in page
    assert f"saccade train hierarchical data=world {' '.join(best)}" in page
    assert len(read_json(tmp_path / "results.json")) == 6


def test_optuna_draws_the_choices_and_is_told_what_came_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    drawn = SimpleNamespace(suggest_categorical=lambda key, values: values[len(told) % len(values)])
    study = SimpleNamespace(ask=lambda: drawn, tell=lambda trial, figure: told.append(figure))
    fake = SimpleNamespace(
        logging=SimpleNamespace(set_verbosity=lambda level: None, WARNING=30),
        create_study=lambda direction, sampler: study,
        samplers=SimpleNamespace(TPESampler=lambda seed: None),
    )
    monkeypatch.setitem(sys.modules, "optuna", fake)
    training = Training()
    done = search(tmp_path, training, trials=3)
    assert told == [1 - 1 + 1, 2 - 0.5 + 1, 1 - 1 + 1, 2 - 0.5 + 2, 2 - 0.5 + 1, 2 - 0.5 + 2]
    assert len(training.seen) == len(done) == 4  # what was drawn twice was trained once
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SaccadeError, match=r"pip install 'saccade\[tune\]'"):
        search(tmp_path, training, trials=3)


def test_plans_of_the_package_have_settings_that_exist_and_bad_ones_are_refused(tmp_path: Path) -> None:
    for name in plan_names():
        plan = read_plan(name)
        for stage in plan.stages:
            for key, values in stage.over.items():
                for value in values:
                    run_config(plan.system, ["data=world", *stage.settings, f"{key}={value}"])
    with pytest.raises(SaccadeError, match='no plan "hierarchcal"; did you mean "hierarchical"'):
        read_plan("hierarchcal")
    for text, said in (
        ("system: scan\nstages: {one: {over: {dim: 3}}}\n", "list of values for each key"),
        ("system: scan\nstages: {}\n", "has no stages"),
        ("stage: {}\n", 'no key "stage"'),
    ):
        write_text(tmp_path / "plan.yaml", text)
        with pytest.raises(SaccadeError, match=said):
            read_plan(str(tmp_path / "plan.yaml"))
