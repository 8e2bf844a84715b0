"""A yardstick: how the runs of one kind of task are measured, what is kept of each, and what a table shows of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from saccade.claims.scores import Arrays, Scores
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.models import Model
from saccade.tasks import SplitForModels

if TYPE_CHECKING:
    from saccade.training.run import RunConfig

SplitOf = Callable[[DataConfig, str], SplitForModels]


class Yardstick(ABC):
    """The lab trains, keeps, compares and writes; a yardstick alone knows what its task is about."""

    file: ClassVar[str]  # where a run keeps its arrays
    metrics: ClassVar[Mapping[str, str]]  # by name, as readers know them
    metric: ClassVar[str]  # of a claim that names none
    columns: ClassVar[tuple[str, ...]]  # of a table
    unit: ClassVar[str]  # what the figures of a table are

    def shown(self, metric: str) -> tuple[str, ...]:
        """The columns of a claim that is judged by this metric."""
        return self.columns if metric in self.columns else (*self.columns, metric)

    @abstractmethod
    def measure(
        self, model: Model, config: RunConfig, split: str, split_of: SplitOf, folder: Path, tables: bool
    ) -> Arrays:
        """Measure a trained model on a split; what an ensemble needs (`tables`) goes into the folder of the run."""

    @abstractmethod
    def scores(self, kept: Arrays) -> Scores:
        """What the arrays say."""

    def tables(self, folder: Path, split: str) -> Path:
        """Where a run keeps what an ensemble needs."""
        raise SaccadeError("an ensemble averages similarities: only matchers have them")

    def ensemble(self, folders: Sequence[Path], split: str, kept: Arrays) -> Scores:
        """Several runs taken together; `kept` is what one of them kept of the split."""
        raise SaccadeError("an ensemble averages similarities: only matchers have them")

    @property
    def ensembles(self) -> bool:
        """Whether several models can be taken together."""
        return type(self).ensemble is not Yardstick.ensemble
