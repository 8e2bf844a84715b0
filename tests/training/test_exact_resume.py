"""A run killed at any moment and resumed ends as if it had never stopped: weights, optimiser, best model and log."""

from __future__ import annotations

import csv
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from toy_training import Points, ToyTask, same_weights, toy_config, toy_model

from saccade.training import Trainer

SETTINGS = {"epochs": 4, "evaluate_every": 3, "checkpoint_every": 5, "log_every": 2, "schedule": "cosine"}

# Processes come from a server that has the libraries loaded and no threads: starting one takes milliseconds.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__, "lightning_fabric", "torch._dynamo", "torch.utils.tensorboard.writer"])


class Reporting(ToyTask):
    """Tells the parent process about each step."""

    def __init__(self, steps: Connection) -> None:
        super().__init__()
        self.steps = steps

    def loss(self, model: nn.Module, batch: Points, step: int) -> tuple[Tensor, dict[str, float]]:
        self.steps.send("step")
        return super().loss(model, batch, step)


def train(
    folder: Path, steps: Connection, fatal_operation: int = 0, die_in_save: int = 0, average: float = 0.0
) -> None:
    """What the child does; it may be told to die at its n-th file operation, or halfway through its n-th checkpoint."""
    torch.set_num_threads(1)
    count = 0

    def on_operation(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir") and str(folder) in str(arguments[0]):
            count += 1
            if count == fatal_operation:
                os.kill(os.getpid(), signal.SIGKILL)

    if fatal_operation:
        sys.addaudithook(on_operation)
    if die_in_save:
        save = torch.save

        def half_save(values: Any, file: Any) -> None:
            nonlocal count
            save(values, file)
            count += isinstance(values, dict) and "progress" in values
            if count == die_in_save:
                file.truncate(file.tell() // 2)
                os.kill(os.getpid(), signal.SIGKILL)

        torch.save = half_save
    config = toy_config(**SETTINGS, average=average)
    Trainer(config, folder, Console(file=StringIO())).fit(toy_model(), Reporting(steps), resume=True)
    steps.send("done")


def start(folder: Path, **how: float) -> tuple[Any, Connection]:
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=train, args=(folder, theirs), kwargs=how)
    process.start()
    theirs.close()
    return process, ours


def finish(folder: Path, **how: float) -> bool:
    """Run a child to its end; False if it was killed."""
    process, _pipe = start(folder, **how)
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return bool(process.exitcode == 0)


def log(folder: Path) -> list[dict[str, str]]:
    rows = list(csv.DictReader(StringIO((folder / "metrics.csv").read_text())))
    for row in rows:
        del row["seconds"]
    return rows


def assert_same_run(one: Path, other: Path) -> None:
    for model in ("best", "last"):
        assert same_weights(torch.load(one / model / "model.pt"), torch.load(other / model / "model.pt"))
    first, second = (torch.load(path / "last.ckpt", weights_only=True) for path in (one, other))
    for checkpoint in (first, second):
        del checkpoint["progress"]["seconds"]
    assert first["progress"] == second["progress"]
    assert first.keys() == second.keys()
    for weights in {"model", "average"} & first.keys():
        assert same_weights(first[weights], second[weights])
    for index, state in first["optimiser"]["state"].items():
        assert same_weights(state, second["optimiser"]["state"][index])
    assert torch.equal(first["random"][0]["torch"], second["random"][0]["torch"])
    assert first["random"][0]["python"] == second["random"][0]["python"]
    assert log(one) == log(other)
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Path]:
    """A run that nobody interrupts, with or without a running average of the weights."""

    @cache
    def run(average: float) -> Path:
        folder = tmp_path_factory.mktemp("straight")
        assert finish(folder, average=average)
        checkpoint = torch.load(folder / "last.ckpt", weights_only=True)
        assert checkpoint["progress"]["step"] == 32
        assert ("average" in checkpoint) == (average > 0)
        return folder

    return run


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_killed_at_random_steps(straight: Callable[[float], Path], tmp_path: Path, average: float) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kills = 0
    for _ in range(5):
        process, steps = start(tmp_path, average=average)
        try:
            for _ in range(chance.randint(1, 14)):
                if steps.recv() == "done":
                    break
        except EOFError:
            break
        time.sleep(chance.random() * 0.02)
        process.kill()
        process.join(60)
        kills += process.exitcode == -signal.SIGKILL
    print(f"{kills} kills")
    assert kills > 0
    assert finish(tmp_path, average=average)
    assert_same_run(straight(average), tmp_path)


def test_killed_at_random_file_operations(straight: Callable[[float], Path], tmp_path: Path) -> None:
    """Between any two renames, in the middle of a folder, before a row: the moments where a trace could be left."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kills = 0
    while kills < 8 and not finish(tmp_path, fatal_operation=chance.randint(1, 60), average=0.9):
        kills += 1
    print(f"{kills} kills")
    assert kills > 0
    assert finish(tmp_path, average=0.9)
    assert_same_run(straight(0.9), tmp_path)


@pytest.mark.parametrize(("count", "average"), [(1, 0.0), (3, 0.0), (3, 0.9)])
def test_killed_while_writing_a_checkpoint(
    straight: Callable[[float], Path], tmp_path: Path, count: int, average: float
) -> None:
    """The checkpoint before stays whole, or there is none; the half one is cleared away."""
    assert not finish(tmp_path, die_in_save=count, average=average)
    assert list(tmp_path.glob(".last.ckpt.*.part"))
    checkpoint = tmp_path / "last.ckpt"
    assert checkpoint.exists() == (count > 1)
    if checkpoint.exists():
        assert 0 < torch.load(checkpoint, weights_only=True)["progress"]["step"] < 32
    assert finish(tmp_path, average=average)
    assert_same_run(straight(average), tmp_path)
