"""Joint training: matching, grounding and answering in turns, by one model (`models/hierarchical.py`).

Every part is the ordinary task of its name, with its own split, settings, loss and measure. `tasks/schedule.py` says
whose turn a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from saccade.batch import Batch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError, not_among
from saccade.data import DataConfig
from saccade.data.registry import DATA_SETS, Annotation
from saccade.explain import Explanation
from saccade.language import Vocabulary
from saccade.language.vectors import load_vectors
from saccade.language.vocabulary import SPECIAL
from saccade.models import Hierarchical, Model, load_model
from saccade.tasks import find_task
from saccade.tasks.answering.task import AnsweringConfig, PictureAnswerer, build_answerer
from saccade.tasks.base import MakeSampler, Sampler, StagedTask, Task, TaskSpec, sampler_of
from saccade.tasks.evaluator import PART, Arrays, EvalRequest, Evaluation, Evaluator, SplitForModels, check_split
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.grounding.task import GroundingConfig
from saccade.tasks.joint import EvalOptions
from saccade.tasks.matching.task import MatchingConfig, PictureMatcher
from saccade.tasks.prepare import Prepared
from saccade.tasks.schedule import Schedule, curriculum_schedule, periodic_schedule
from saccade.vision.augment import AugmentConfig
from saccade.vision.pictures import Picture

ANNOTATIONS: Mapping[str, Annotation] = {"matching": "captions", "grounding": "grounding", "answering": "questions"}
RECALLS = 6  # that rsum adds up


@dataclass(frozen=True)
class Turns:
    """How often it is a part's turn, and how it then learns."""

    share: float = 1.0  # α: round(C α) steps of every cycle are this part's
    rate: float = 1.0  # times the trainer's learning rate
    batch: int | None = None  # its batch size; none: the trainer's

    def __post_init__(self) -> None:
        check_ranges(self, "share rate", "more than zero")
        check_ranges(self, "batch", "at least 1")


@dataclass(frozen=True)
class MatchingPart(Turns, MatchingConfig):
    """The paper's loss: binary cross-entropy of matched and unmatched pairs."""

    loss: Literal["triplet", "bce", "contrastive"] = "bce"
    negatives: Literal["hardest", "all"] = "all"
    same_image_negatives: bool = False
    min_count: int = 1

    def __post_init__(self) -> None:
        Turns.__post_init__(self)
        MatchingConfig.__post_init__(self)


@dataclass(frozen=True)
class GroundingPart(Turns, GroundingConfig):
    def __post_init__(self) -> None:
        Turns.__post_init__(self)
        GroundingConfig.__post_init__(self)


@dataclass(frozen=True)
class AnsweringPart(Turns, AnsweringConfig):
    def __post_init__(self) -> None:
        Turns.__post_init__(self)
        AnsweringConfig.__post_init__(self)


@dataclass(frozen=True)
class JointConfig:
    """Which tasks are learned, in which order, and the settings of each."""

    parts: tuple[str, ...] = tuple(ANNOTATIONS)  # in the order of their turns
    order: Literal["periodic", "curriculum"] = "periodic"  # curriculum: the first alone, then the first two, then all
    cycle: int = 10  # C: steps of a part of share 1 in a cycle
    stage_cycles: int = 10  # of each stage of a curriculum, after which all parts take turns
    matching: MatchingPart = field(default_factory=MatchingPart)
    grounding: GroundingPart = field(default_factory=GroundingPart)
    answering: AnsweringPart = field(default_factory=AnsweringPart)

    def __post_init__(self) -> None:
        check_ranges(self, "cycle stage_cycles", "at least 1")
        for part in self.parts:
            if part not in ANNOTATIONS:
                raise SaccadeError(f"task.parts: there is no part {not_among(part, list(ANNOTATIONS))}")
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise SaccadeError("task.parts names each task that is trained once, and one at least")
        for part, count in zip(self.parts, self.counts, strict=True):
            if not count:
                raise SaccadeError(
                    f"task.{part}.share is too small: no step of a cycle of task.cycle={self.cycle} is its"
                )

    @property
    def counts(self) -> tuple[int, ...]:
        """Steps of each part in a cycle, C α_i."""
        return tuple(round(self.cycle * getattr(self, part).share) for part in self.parts)

    def schedule(self) -> Schedule:
        first = curriculum_schedule(self.parts, self.counts, self.stage_cycles) if self.order == "curriculum" else ()
        return Schedule(first, periodic_schedule(self.parts, self.counts, 1))


class JointSplit:
    """One split as each part reads it, opened when first asked for: a data set need not have what all parts learn
    from."""

    def __init__(self, name: str, open: Callable[[str], Any], ids: frozenset[str] | None = None) -> None:
        self.name, self._open, self.ids = name, open, ids
        self._opened: dict[str, Any] = {}

    def part(self, name: str) -> Any:
        """Raises: SaccadeError if the data set has nothing that this part learns from."""
        if name not in self._opened:
            if not self._has(name):
                known = [part for part in ANNOTATIONS if self._has(part)]
                raise SaccadeError(
                    f"data={self.name} has no {ANNOTATIONS[name]}, from which {name} is learned: "
                    f"leave it out, task.parts=[{','.join(known)}]"
                )
            data = self._open(name)
            if self.ids is not None:
                data = data.select([n for n, id in enumerate(data.images.ids) if id in self.ids])
            self._opened[name] = data
        return self._opened[name]

    def _has(self, part: str) -> bool:
        return self.name not in DATA_SETS or ANNOTATIONS[part] in DATA_SETS[self.name].readers

    @property
    def images(self) -> Any:
        """The pictures, as the first part that has any reads them."""
        return self.part(next((part for part in ANNOTATIONS if self._has(part)), "matching")).images

    def select(self, positions: Sequence[int]) -> JointSplit:
        """The pictures at `positions` of `images`, in every part."""
        return JointSplit(self.name, self._open, frozenset(self.images.ids[n] for n in positions))


def open_joint_split(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> JointSplit:
    return JointSplit(config.name, lambda part: find_task(part).open(config, split, pixels, device))


class JointSampler:
    """Every part's own sampler, and whose turn it is."""

    def __init__(self, schedule: Schedule, samplers: Mapping[str, Sampler]) -> None:
        self.schedule, self.samplers = schedule, samplers

    @property
    def steps_per_epoch(self) -> int:
        """As many as the epochs of all parts have together."""
        return sum(sampler.steps_per_epoch for sampler in self.samplers.values())

    def indices(self, step: int) -> tuple[str, Any]:
        part, own = self.schedule.at(step)
        return part, self.samplers[part].indices(own)


class JointTask:
    """The tasks of the parts, of which each step trains one."""

    selection = "mean"

    def __init__(
        self, model: Model, train: JointSplit, dev: JointSplit, config: JointConfig, augmentation: AugmentConfig
    ) -> None:
        self.config, self.schedule = config, config.schedule()
        self.parts: dict[str, Task[Any]] = {}
        for part in config.parts:
            settings = getattr(config, part)
            self.parts[part] = find_task(part).task(model, train.part(part), dev.part(part), settings, augmentation)

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def sampler(self, make: MakeSampler) -> JointSampler:
        def of(part: str) -> Sampler:
            own: int | None = getattr(self.config, part).batch
            return sampler_of(self.parts[part], lambda count, size: make(count, size or own))

        return JointSampler(self.schedule, {part: of(part) for part in self.parts})

    def rate(self, step: int) -> float:
        return float(getattr(self.config, self.schedule.at(step)[0]).rate)

    def batch(self, indices: Any) -> Any:
        part, own = indices
        return self.parts[part].batch(own)

    def before_loss(self, model: Model, batch: Any, step: int) -> Any:
        part, own = self.schedule.at(step)
        task = self.parts[part]
        return task.before_loss(model, batch, own) if isinstance(task, StagedTask) else batch

    def graph_batch(self, model: Model, batch: Any, step: int) -> Batch | None:
        """The part's own: batches of different parts are of different classes."""
        part, own = self.schedule.at(step)
        task = self.parts[part]
        return task.graph_batch(model, batch, own) if isinstance(task, StagedTask) else None

    def loss(self, model: Model, batch: Any, step: int) -> tuple[Tensor, dict[str, float | Tensor]]:
        part, own = self.schedule.at(step)
        loss, figures = self.parts[part].loss(model, batch, own)
        return loss, {f"{part}_loss": loss.detach(), **{f"{part}_{name}": value for name, value in figures.items()}}

    def evaluate(self, model: Model) -> dict[str, float]:
        return with_mean({part: task.evaluate(model) for part, task in self.parts.items()})


def with_mean(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """All figures by part, after the mean of those by which each part alone would choose its best model: rsum counts as
    the mean of its six recalls, so that all are per cent."""
    best = [
        figures[metric] / (RECALLS if metric == "rsum" else 1)
        for part, figures in found.items()
        for metric in [find_task(part).evaluator.metric]
    ]
    figures = {f"{part}_{name}": value for part, own in found.items() for name, value in own.items()}
    return {"mean": float(np.mean(best)), **figures}


class JointMeasures(Evaluator[Model, JointSplit]):
    """What each part is measured by, with the part's name before it."""

    metrics: ClassVar = {
        "mean": "mean over tasks",
        **{
            f"{part}_{name}": f"{part}, {title}"
            for part in ANNOTATIONS
            for name, title in find_task(part).evaluator.metrics.items()
        },
    }
    metric = "mean"
    columns = ("mean",)
    unit = "Per cent"

    def shown(self, metric: str) -> tuple[str, ...]:
        """The columns of the part that a claim is about: a model trained on one task has no others."""
        part, _, own = metric.partition("_")
        return tuple(f"{part}_{one}" for one in find_task(part).evaluator.shown(own)) if own else self.columns

    def evaluate(self, model: Model, data: JointSplit, settings: JointConfig) -> dict[str, float]:
        return with_mean(
            {
                part: find_task(part).evaluator.evaluate(model, data.part(part), getattr(settings, part))
                for part in settings.parts
            }
        )

    def measure(self, model: Model, data: JointSplit, settings: JointConfig, folder: Path, tables: bool) -> Arrays:
        kept: dict[str, np.ndarray] = {}
        found: dict[str, Mapping[str, float]] = {}
        for part in settings.parts:
            evaluator = find_task(part).evaluator
            own = getattr(settings, part)
            scores = evaluator.scores(evaluator.measure(model, data.part(part), own, folder, False))
            found[part] = scores.figures
            kept |= {f"{PART}{part}_{name}": each for name, each in scores.by_picture.items()}
            kept |= {name: np.asarray(count) for name, count in scores.counts.items()}
        return kept | {name: np.asarray(value) for name, value in with_mean(found).items()}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every figure, a column for every model."""
        splits = SplitForModels(request.data, request.split)
        found: dict[str, dict[str, float]] = {}
        for folder in request.models:
            model = load_model(folder, Hierarchical).to(request.device)
            data: JointSplit = splits.regions_for(model, folder)
            settings = replace(request.settings.get(folder, JointConfig()), parts=model.config.parts)
            for part in settings.parts:
                check_split(model, folder, data.part(part))
            found[folder] = self.evaluate(model, data, settings)
        names = dict.fromkeys(name for figures in found.values() for name in figures)
        return Evaluation(
            f"{request.data.name}/{request.split}: {len(data.images)} pictures; per cent",
            ("figure", *found),
            tuple((n, *(f"{own[n]:.1f}" if n in own else "" for own in found.values())) for n in names),
            {"data": request.data.name, "split": request.split, "results": found},
        )


def prepare_joint(train: JointSplit, settings: JointConfig) -> Prepared:
    """The words of all parts, the answers, and the width of the regions."""
    found = {part: find_task(part).prepare(train.part(part), getattr(settings, part)) for part in settings.parts}
    every = [one.vocabulary for one in found.values() if one.vocabulary is not None]
    words = tuple(dict.fromkeys(word for vocabulary in every for word in vocabulary.words))
    tables = [getattr(settings, part).vectors for part in settings.parts if getattr(settings, part).vectors]
    first = next(iter(found.values()))
    return replace(
        first,
        vocabulary=Vocabulary(words),
        vectors=load_vectors(tables[0], words[len(SPECIAL) :]) if tables else None,
        labels=next((one.labels for one in found.values() if one.labels), ()),
        notes=tuple(note for one in found.values() for note in one.notes),
        facts={"words": len(words), "parts": list(settings.parts)},
    )


def build_joint(kind: type[Hierarchical], config: Any, prepared: Prepared) -> Hierarchical:
    """A fresh model with a branch for each part."""
    built = build_answerer(kind, replace(config, parts=tuple(prepared.facts["parts"])), prepared)
    assert isinstance(built, Hierarchical)
    return built


class JointPredictor(PictureMatcher, PictureAnswerer, PictureGrounder):
    """What the predictors of the three tasks do; a question is explained by its answer, a sentence by its phrases."""

    uses = (*PictureMatcher.uses, *PictureAnswerer.uses)  # and grounding, which adopts it as it does any grounder
    model: Hierarchical

    @classmethod
    def adopt(cls, model: Model) -> JointPredictor | None:
        """With the uses of those tasks that the model was trained for."""
        if not isinstance(model, Hierarchical):
            return None
        found, uses = cls(model), {"matching": PictureMatcher.uses, "answering": PictureAnswerer.uses}
        found.uses = tuple(use for part in found.parts for use in uses.get(part, ()))  # type: ignore[misc]
        return found

    @cached_property
    def parts(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.model.config.parts
        return found

    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        if text is None:
            raise SaccadeError("this model explains an answer or a sentence: give one after the picture")
        asks = text.rstrip().endswith("?") and "answering" in self.parts
        kind = PictureAnswerer if asks else PictureGrounder if "grounding" in self.parts else PictureMatcher
        return kind.explain(self, image, text, title=title)


SPEC: TaskSpec[Hierarchical, JointSplit] = TaskSpec(
    name="joint",
    noun="multi-task model",
    does="matches, grounds and answers",
    protocol=Hierarchical,
    config=JointConfig,
    open=open_joint_split,
    prepare=prepare_joint,
    task=JointTask,
    evaluator=JointMeasures(),
    predictor=JointPredictor,
    verbs=("ask", "score", "explain"),
    options=EvalOptions,
    next_steps=("saccade eval {run}", 'saccade explain PICTURE "a red cube left of a ball" --model {run}'),
    build=build_joint,
)
