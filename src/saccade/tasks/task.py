"""What the trainer needs to know of a task: its items, its loss, and the metric that says which model is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from saccade.batch import Batch

Figures = Mapping[str, float | Tensor]  # to log


class Task(Protocol):
    """A task joins training items, a loss and an evaluation; the trainer never looks inside them.

    A task may also have `prepare` and `recordable`, as a `PreparedTask` has.
    """

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

    def loss(self, model: nn.Module, batch: Any, step: int) -> tuple[Tensor, Figures]:
        """The scalar to minimise at this step (counted from 0 over the whole run), and further figures to log."""
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on the development split; the model is in eval mode and no gradient is kept."""
        ...


@runtime_checkable
class PreparedTask(Protocol):
    """A task with something to do before a step's loss, which then may be recorded and replayed on a GPU."""

    def prepare(self, model: nn.Module, batch: Any, step: int) -> Any:
        """What the loss is given instead of the batch: captions that the model said of it, and their rewards, say.

        No gradient is kept here.
        """
        ...

    def recordable(self, model: nn.Module, batch: Any, step: int) -> Batch | None:
        """A prepared batch whose loss does the same at every step, with what its tensors hold and nothing else.

        Its shapes should come back in other batches: pad them. None: this step's loss is another, or has to look at
        more than tensors.
        """
        ...
