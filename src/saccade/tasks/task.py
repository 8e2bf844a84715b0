"""What the trainer needs to know of a task: its items, its loss, and the metric that says which model is best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn


class Task(Protocol):
    """A task joins training items, a loss and an evaluation; the trainer never looks inside them."""

    selection: str
    """The metric whose maximum marks the best model, for example "rsum"."""

    def __len__(self) -> int:
        """How many training items (pairs, questions, …) an epoch goes through."""
        ...

    def batch(self, indices: Sequence[int]) -> Any:
        """The items at `indices`, collated on the CPU: anything with `.to(device)`, or a tuple, list or dict of such.

        It may run ahead in a background thread, so it must depend on `indices` alone. What is random (masking words,
        sampling negatives) belongs in `loss`, where the trainer keeps the random state.
        """
        ...

    def loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, dict[str, float]]:
        """The scalar to minimise at this step (counted from 0 over the whole run), and further figures to log."""
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on the development split; the model is in eval mode and no gradient is kept."""
        ...
