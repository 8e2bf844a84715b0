"""Run by test_ddp: trains on two processes and leaves each rank's weights in the folder named by the first word."""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from toy_training import ToyTask, toy_config

from saccade.core.errors import SaccadeError
from saccade.nn.transformer import Layer, run_layers
from saccade.training import FitResult, Trainer


class Plain(torch.nn.Module):
    """Without batch statistics, two halves of a batch give the gradient of the whole."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.outer = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)
        self.dropout = torch.nn.Dropout(0.0)

    def classify(self, values: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.outer(self.dropout(self.inner(values).relu()))
        return logits

    def save_pretrained(self, folder: Path) -> None:
        torch.save(self.state_dict(), Path(folder) / "model.pt")


class Layered(Plain):
    """With a transformer layer, whose weights are shared out by themselves."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.layer = Layer(8, 2, 24)

    def classify(self, values: torch.Tensor) -> torch.Tensor:
        tokens = self.inner(values).unflatten(1, (2, 8))  # two: of one alone, queries and keys would have no gradient
        states = run_layers([self.layer], tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))
        logits: torch.Tensor = self.outer(states.flatten(1))
        return logits


class Quiet(ToyTask):
    """No noise, so that the ranks together do what one process does."""

    def loss(self, model: Any, batch: Any, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        logits = model.classify(batch.values)
        return torch.nn.functional.cross_entropy(logits, batch.labels), {}


def fit(folder: Path, task: ToyTask, seed: int, resume: bool = False, dropout: float = 0.0, **settings: Any) -> Any:
    model = Layered(seed) if settings.get("strategy") == "fsdp" else Plain(seed)
    model.dropout.p = dropout
    config = toy_config(**{"devices": 2, "strategy": "ddp", **settings})
    result: FitResult = Trainer(config, folder, Console(file=StringIO())).fit(model, task, resume)
    return model.state_dict(), result


def main(folder: Path) -> None:
    weights: dict[str, Any] = {}
    rank = int(os.environ.get("LOCAL_RANK", 0))  # the first process learns its own only by launching the other
    # Each rank begins with other weights: those of rank zero must win.
    weights["whole"], result = fit(folder / "whole", Quiet(), seed=1 + rank)
    weights["straight"], _ = fit(folder / "straight", ToyTask(), seed=1, dropout=0.3)
    fit(folder / "resumed", ToyTask(), seed=1, dropout=0.3, steps=8)
    weights["resumed"], _ = fit(folder / "resumed", ToyTask(), seed=5, dropout=0.3, resume=True)
    fit(folder / "sharded", Quiet(), seed=1 + rank, strategy="fsdp")
    fit(folder / "sharded-resumed", Quiet(), seed=1, strategy="fsdp", steps=8)
    fit(folder / "sharded-resumed", Quiet(), seed=5, strategy="fsdp", resume=True)
    fit(folder / "accumulated", Quiet(), seed=1, accumulate=2)
    sentence = ""
    try:
        fit(folder / "whole", Quiet(), seed=1)
    except SaccadeError as error:
        sentence = str(error)
    torch.save({"weights": weights, "best": result.best, "sentence": sentence}, folder / f"rank{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
