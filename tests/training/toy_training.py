"""A small task for the trainer's tests: a classifier with dropout on points drawn from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.core.files import write_text
from saccade.training import TrainerConfig


@dataclass(frozen=True)
class Points:
    """A frozen batch, like the real ones."""

    values: Tensor
    labels: Tensor

    def to(self, device: Any) -> Points:
        return replace(self, values=self.values.to(device), labels=self.labels.to(device))


class ToyModel(nn.Module):
    def __init__(self, dim: int = 6, hidden: int = 16) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, hidden)
        self.norm = nn.BatchNorm1d(hidden)  # has buffers, which must survive too
        self.dropout = nn.Dropout(0.4)
        self.outer = nn.Linear(hidden, 3)

    def classify(self, values: Tensor) -> Tensor:  # not called forward: tasks may call any method
        logits: Tensor = self.outer(self.dropout(self.norm(self.inner(values)).relu()))
        return logits

    def save_pretrained(self, folder: Path) -> None:
        torch.save(self.state_dict(), Path(folder) / "model.pt")
        write_text(Path(folder) / "config.json", "{}")


class ToyTask:
    """Draws from every random generator in the loss, as a task may."""

    selection = "accuracy"

    def __init__(self, count: int = 70) -> None:
        generator = torch.Generator().manual_seed(7)
        self.values = torch.randn(count, 6, generator=generator)
        self.labels = (self.values @ torch.randn(6, 3, generator=generator)).argmax(dim=1)

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: Sequence[int]) -> Points:
        return Points(self.values[list(indices)], self.labels[list(indices)])

    def loss(self, model: nn.Module, batch: Points, step: int) -> tuple[Tensor, dict[str, float]]:
        noise = float(np.random.normal()) + random.gauss(0, 1)  # noqa: NPY002
        logits = model.classify(batch.values + 0.01 * noise)  # type: ignore[operator]
        loss = nn.functional.cross_entropy(logits, batch.labels)
        return loss, {"margin": float(logits.detach().max())}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        assert not model.training
        torch.rand(1), random.random()  # an evaluation may draw as well
        logits = model.classify(self.values)  # type: ignore[operator]
        return {"accuracy": float((logits.argmax(dim=1) == self.labels).float().mean())}


def toy_model(seed: int = 1) -> ToyModel:
    torch.manual_seed(seed)
    return ToyModel()


def toy_config(**settings: Any) -> TrainerConfig:
    """Eight steps an epoch, two epochs."""
    values = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2, "accelerator": "cpu", "log_every": 3, **settings}
    return TrainerConfig(**values)


def same_weights(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Bit by bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
