"""How models of a task are measured: in training, by `saccade eval`, and for claims, where every picture counts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages, DataConfig
from saccade.models import Model
from saccade.tasks import find_task

Arrays = Mapping[str, np.ndarray]  # what a run keeps of a split
PART = "part/"  # … what a picture adds to the figure of this name
M = TypeVar("M", bound=Model, contravariant=True)
D = TypeVar("D", contravariant=True)


@dataclass(frozen=True, eq=False)
class Scores:
    """A figure that is a sum over pictures has its parts in `by_picture`; one of the split as a whole has none."""

    figures: Mapping[str, float]  # by metric, as tables print them
    by_picture: Mapping[str, Float[np.ndarray, " image"]]  # of some metrics: adds up to the figure
    counts: Mapping[str, int]  # pictures, texts
    chance: Mapping[str, float] = field(default_factory=dict)

    def with_figure(self, metric: str, value: float) -> Scores:
        """A figure that nobody was trained for, on the same pictures; all of them add alike."""
        parts = {}
        if metric in self.by_picture:
            count = len(self.by_picture[metric])
            parts[metric] = np.full(count, value / max(count, 1))
        return Scores({metric: value}, parts, self.counts, self.chance)


def mean_parts(each: Float[np.ndarray, " image"], factor: float = 100.0) -> Float[np.ndarray, " image"]:
    """What every picture adds to the mean of `each`, given times 100; a picture without a value (nan) adds nothing."""
    known = np.isfinite(each)
    return np.where(known, each, 0.0) * factor / max(int(known.sum()), 1)


@dataclass(frozen=True)
class EvalRequest:
    """Which models `saccade eval` is to compare, and on what."""

    models: tuple[str, ...]  # run or model folders, all of one task
    data: DataConfig
    split: str
    device: str
    options: Any  # the task's EvalOptions
    settings: Mapping[str, Any]  # the task's settings of those models that are runs


@dataclass(frozen=True)
class Evaluation:
    """What `saccade eval` prints and writes."""

    title: str
    headings: tuple[str, ...]  # of the table; all columns but the first hold figures
    rows: tuple[tuple[str, ...] | None, ...]  # None: a line across
    figures: Mapping[str, Any]  # for --json
    notes: tuple[str, ...] = ()


class Evaluator(ABC, Generic[M, D]):
    """What the trainer, `saccade eval` and the claims call; it alone knows what its task is about."""

    file: ClassVar[str] = "scores.npz"  # where a run keeps its arrays
    metrics: ClassVar[Mapping[str, str]]  # by name, as readers know them
    metric: ClassVar[str]  # of a claim that names none
    columns: ClassVar[tuple[str, ...]]  # of a table
    unit: ClassVar[str]  # what the figures of a table are

    @abstractmethod
    def evaluate(self, model: M, data: D, settings: Any) -> dict[str, float]:
        """Metrics of a model on a split, under the task's settings."""

    @abstractmethod
    def compare(self, request: EvalRequest) -> Evaluation:
        """Models side by side on one split, as `saccade eval` shows them."""

    def shown(self, metric: str) -> tuple[str, ...]:
        """The columns of a claim that is judged by this metric."""
        return self.columns if metric in self.columns else (*self.columns, metric)

    def measure(self, model: M, data: D, settings: Any, folder: Path, tables: bool) -> Arrays:
        """What is kept of a run on a split: figures and counts by their names, and parts of some figures.

        What an ensemble needs (`tables`) goes into the folder of the run.
        """
        found = {**self.evaluate(model, data, settings), **self.counts(data, settings)}
        return {name: np.asarray(value) for name, value in found.items()}

    def counts(self, data: D, settings: Any) -> dict[str, int]:
        """How many pictures and texts of a split are measured."""
        raise NotImplementedError

    def scores(self, kept: Arrays) -> Scores:
        """What the arrays say: as they stand, figures and parts by their names."""
        figures = {name: float(kept[name]) for name in self.metrics if name in kept}
        parts = {name: kept[PART + name] for name in figures if PART + name in kept}
        return Scores(figures, parts, {name: int(kept[name]) for name in ("pictures", "texts")})

    def tables(self, folder: Path, split: str) -> Path:
        """Where a run keeps what an ensemble needs, of a task that has ensembles."""
        raise SaccadeError("an ensemble averages similarities, and these models have none")

    def ensemble(self, folders: Sequence[Path], split: str, kept: Arrays) -> Scores:
        """Several runs taken together; `kept` is what one of them kept of the split."""
        raise SaccadeError("an ensemble averages similarities, and these models have none")

    @property
    def ensembles(self) -> bool:
        """Whether several models can be taken together."""
        return type(self).ensemble is not Evaluator.ensemble


def results_files(file: Path | None, folders: Sequence[str]) -> dict[str, Path]:
    """Where what each model said is kept: in the file that was named, or one beside it for each of several."""
    if file is None:
        return {}
    if len(folders) == 1:
        return {folders[0]: file}
    names = [Path(folder).resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(1, len(folders) + 1)]
    files = [file.with_name(f"{file.stem}-{name}{file.suffix}") for name in names]
    return dict(zip(folders, files, strict=True))


Costs = Mapping[str, float | None]  # by column; None where the system does not say


@dataclass(frozen=True)
class CostColumn:
    """Something that using a model costs, as a column of the leaderboard."""

    heading: str
    show: Callable[[float], str]
    meaning: str = ""  # for a page's legend, with {pictures} and {texts} of the split; empty: the heading says it all
    adds_up: bool = True  # over the models of an ensemble, which are used one after another; else the largest counts

    def together(self, values: Sequence[float | None]) -> float | None:
        """Of models that are used one after another."""
        return joined(values, sum if self.adds_up else max)


def joined(values: Sequence[float | None], join: Callable[[list[float]], Any]) -> float | None:
    """Whole numbers stay whole; what is not known of one model counts for nothing."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return round(join(known)) if all(isinstance(value, int) for value in known) else float(join(known))


class Benchmark(ABC, Generic[M, D]):
    """What the leaderboard needs of a task: columns, what a model's output on a split is, its figures and its costs."""

    figures: ClassVar[Mapping[str, str]]  # headings on a page, by metric: what the order goes by first
    narrow_headings: ClassVar[tuple[str, ...]]  # of the same in a terminal, after one for the model's name
    unit: ClassVar[str]  # what the figures are
    costs: ClassVar[Mapping[str, CostColumn]]
    time: ClassVar[tuple[str, str]]  # the cost that a plot sets the first figure against, and the name of that axis
    ensembles: ClassVar[str]  # what an ensemble is, for the legend

    @abstractmethod
    def measure(self, model: M, data: D) -> tuple[Any, Costs]:
        """A model's output on a split, and what making it took."""

    @abstractmethod
    def score(self, output: Any, data: D) -> dict[str, float]:
        """The figures of an output."""

    @abstractmethod
    def chance(self, data: D) -> dict[str, float]: ...

    @abstractmethod
    def average(self, outputs: Sequence[Any]) -> Any:
        """The output of an ensemble."""

    def behind(self, first: str, split: SplitForModels, device: str, count: int, blend: float) -> Benchmark[M, D]:
        """The same, of which cross-encoders put the best `count` of each query by a first model in order again.

        Raises: SaccadeError if the task has none.
        """
        raise SaccadeError("models of this leaderboard rank everything themselves: leave --first out")

    def said_of(self, model: M) -> str:
        """What a row says of how its model took part."""
        return ""


class SplitForModels:
    """One split of a data set as each model reads it: as pixels, or as regions of the extractor that it learned from.

    Each form is opened once, however many models share it; pictures and sentences are the same in all.
    """

    def __init__(self, config: DataConfig, split: str) -> None:
        self.config, self.split = config, split
        self._opened: dict[tuple[Any, str, int | None], Any] = {}

    def regions_for(self, model: Model, name: object, task: str | None = None) -> Any:
        """The split for this model, or as one of its tasks reads it; `name` is what a user calls the model, for the
        error that says why it cannot be."""
        pixels = model.backbone.size if model.backbone is not None else None
        extractor = model.extractor or self.config.extractor  # the model says what made the regions it learned from
        open = find_task(task or model.task).open
        if (open, extractor, pixels) not in self._opened:
            config = replace(self.config, extractor=extractor, in_memory=False)
            self._opened[open, extractor, pixels] = open(config, self.split, pixels)
        data = self._opened[open, extractor, pixels]
        check_split(model, name, data)
        return data


def check_split(model: Model, name: object, data: Any) -> None:
    """Raises: SaccadeError if a model of regions cannot read those of a split."""
    pictures = getattr(data, "pictures", data)
    if model.backbone is None and isinstance(pictures, CaptionedImages):
        check_features(model, name, pictures.regions.dim, pictures.extractor, pictures.name)


def check_features(model: Model, name: object, dim: int, extractor: str | None, where: object) -> None:
    """Raises: SaccadeError if a model cannot read the regions that are `where`: of another size or extractor."""
    if model.backbone is not None:
        raise SaccadeError(f"{name} reads pixels with a backbone of its own, {where} holds regions: give it the photos")
    if (known := getattr(model.config, "region_dim", dim)) != dim:
        raise SaccadeError(f"{name} reads features of {known} numbers, {where} has {dim}")
    if model.extractor and extractor and _kind(model.extractor) != _kind(extractor):
        raise SaccadeError(
            f"{name} learned from regions of the extractor {model.extractor}, {where} holds those of {extractor}"
        )


def _kind(extractor: str) -> str:
    """`bottomup` of `bottomup@36`: the same extractor may be written in several ways."""
    return re.split("[:@]", extractor)[0]
