"""What a task is: to the trainer (`Task`), and to everything else that must know one task from another (`TaskSpec`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from saccade.batch import Batch
from saccade.data import DataConfig
from saccade.models import Model
from saccade.tasks.evaluator import Benchmark, Evaluator
from saccade.tasks.predict import Predictor
from saccade.tasks.prepare import Prepared, build_model
from saccade.vision.augment import AugmentConfig

Figures = Mapping[str, float | Tensor]  # to log
Loss = tuple[Tensor, Figures]
N = TypeVar("N", bound=nn.Module, contravariant=True)
M = TypeVar("M", bound=Model)
D = TypeVar("D")  # a split
S = TypeVar("S", covariant=True)


class Task(Protocol[N]):
    """A task joins training items, a loss and an evaluation; the trainer knows nothing of their insides.

    A task may also have the methods of a `StagedTask`, an `OwnOrder` or a `JointlyTrained`.
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

    def loss(self, model: N, batch: Any, step: int) -> Loss:
        """The scalar to minimise at this step (counted from 0 over the whole run), and further figures to log."""
        ...

    def evaluate(self, model: N) -> dict[str, float]:
        """Metrics on the development split; the model is in eval mode and no gradient is kept."""
        ...


@runtime_checkable
class StagedTask(Protocol[N]):
    """A task with something to do before a step's loss, which may then be captured as a CUDA graph."""

    def before_loss(self, model: N, batch: Any, step: int) -> Any:
        """What the loss is given instead of the batch: captions that the model decoded, and their rewards, say.

        No gradient is kept here.
        """
        ...

    def graph_batch(self, model: N, batch: Any, step: int) -> Batch | None:
        """The batch with which this step's loss can be captured as a CUDA graph and replayed, or None if it cannot.

        The loss must depend on the batch's tensors alone, in the same way at every step. (A step that synchronises with
        the host is noticed, and not captured.) Shapes should recur in other batches: pad them.
        """
        ...


class Sampler(Protocol):
    """Which items a step learns from."""

    @property
    def steps_per_epoch(self) -> int: ...

    def indices(self, step: int) -> Any:
        """What the task's `batch` is given."""
        ...


MakeSampler = Callable[[int, int | None], Sampler]  # from a number of items and a batch size (None: the trainer's)


@runtime_checkable
class OwnOrder(Protocol):
    """A task that says in which order its items come, made of samplers that go through so many items."""

    def sampler(self, make: MakeSampler) -> Sampler: ...


def sampler_of(task: Task[Any], make: MakeSampler) -> Sampler:
    """In which order a task's items come: its own, or each once an epoch."""
    return task.sampler(make) if isinstance(task, OwnOrder) else make(len(task), None)


@runtime_checkable
class JointlyTrained(OwnOrder, Protocol):
    """A task made of several, which takes turns: each draws from its own items, and may learn at its own rate."""

    def rate(self, step: int) -> float:
        """What the learning rate of a step is multiplied by."""
        ...


class Open(Protocol[S]):
    """Opens one split: `pixels` is the side of pictures for a model that trains its own backbone; where a data set is
    held in memory, `device` says whose."""

    def __call__(self, config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> S: ...


@dataclass(frozen=True)
class TaskSpec(Generic[M, D]):
    """Everything that varies by task. `train`, `eval`, `load`, the claims and the leaderboard know no more of it."""

    name: str  # as models name their task: "matching"
    noun: str  # what a model of it is called: "matcher"
    does: str  # … and does: "matches pictures with sentences"
    protocol: type[M]  # what its models are
    config: type  # its settings
    open: Open[D]  # what a split is
    prepare: Callable[[D, Any], Prepared]  # (training split, settings) → what a model is built from
    task: Callable[[M, D, D, Any, AugmentConfig], Task[M]]  # (model, train, dev, settings, augmentation)
    evaluator: Evaluator[M, D]
    predictor: type[Predictor[Any]]  # what `saccade.load` returns
    verbs: tuple[str, ...]  # the commands that use a trained model
    options: type  # of `saccade eval`: EvalOptions, in the task's __init__.py
    next_steps: tuple[str, ...] = ("saccade eval {run}{split}",)  # after training; PHOTO stands for a user's own
    build: Callable[[type[M], Any, Prepared], M] = build_model  # (class, its settings, prepared) → a fresh model
    measures: tuple[type[Model], ...] = ()  # further models that its evaluator takes, though not trained for the task
    benchmark: Benchmark[M, D] | None = None  # for the leaderboard; None: it has no table of such models

    @property
    def commands(self) -> str:
        """`saccade score`, `saccade explain`: for messages."""
        return ", ".join(f"`saccade {verb}`" for verb in self.verbs)
