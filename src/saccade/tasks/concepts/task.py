"""Concept learning: a question's program is executed on its picture; taught are its answer and those of metaconcepts.

Every step learns from visual questions and, beside them, from questions about pairs of concepts (VCML, § 3): both reach
the same half-spaces. What concepts, attributes and relations there are the training programs say; the values of an
attribute are the answers to the questions for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import Batch, PictureBatch, Program, RegionBatch, Step
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.records import CaptionedImages, ImageSource, Questions
from saccade.features import open_questions
from saccade.metrics.answers import by_kind
from saccade.models import ConceptLearner, ProgramParser, load_model
from saccade.models.base.concepts import METACONCEPTS
from saccade.nn.programs import KINDS, Execution
from saccade.tasks.answering.evaluate import majority
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.concepts import EvalOptions
from saccade.tasks.concepts.predict import ConceptAnswerer
from saccade.tasks.evaluator import (
    PART,
    Arrays,
    EvalRequest,
    Evaluation,
    Evaluator,
    SplitForModels,
    mean_parts,
)
from saccade.tasks.pairs import vary_images
from saccade.tasks.parsing.task import parse_all
from saccade.tasks.prepare import Prepared, build_model, prepare_words
from saccade.vision.augment import AugmentConfig
from saccade.world.questions.metaconcepts import MetaQuestion, metaconcept_questions


@dataclass(frozen=True)
class ConceptsConfig:
    """What a model learns from, and in which order."""

    min_count: int = 1  # rarer words of the training questions are unknown words
    metaconcept_batch: int = 64  # questions about concepts in every step; 0: visual questions alone
    metaconcept_weight: float = 1.0  # of their loss
    visual_weight: float = 1.0  # of the loss of visual questions; 0: concepts are learned from words alone
    short_first: int = 0  # steps in which a program's loss counts the sooner the shorter it is; 0: all at once
    eval_batch: int = 256  # questions answered at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_count eval_batch", "at least 1")
        check_ranges(self, "metaconcept_batch metaconcept_weight visual_weight short_first", "zero or more")


@dataclass(frozen=True)
class Lessons:
    """A split: questions about pictures, with programs, and questions about concepts.

    Of pairs that were learned, all is soon known: what judges a training split are the pairs of `eval_metaconcepts`.
    """

    visual: Questions[CaptionedImages]
    metaconcepts: tuple[MetaQuestion, ...]
    eval_metaconcepts: tuple[MetaQuestion, ...] | None = None  # none: the metaconcepts themselves

    @property
    def images(self) -> ImageSource:
        return self.visual.images

    @property
    def pictures(self) -> CaptionedImages:
        return self.visual.pictures

    @property
    def to_evaluate(self) -> tuple[MetaQuestion, ...]:
        return self.metaconcepts if self.eval_metaconcepts is None else self.eval_metaconcepts

    def select(self, positions: Sequence[int]) -> Lessons:
        """The pictures at `positions` with their questions, and all questions about concepts."""
        return replace(self, visual=self.visual.select(positions))


def open_lessons(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> Lessons:
    """Raises: SaccadeError if the questions of this data set have no programs."""
    visual = open_questions(config, split, pixels, device)
    if not visual.programs:
        raise SaccadeError(f"{visual.pictures.name} has questions without programs: concept learners execute them")
    if config.name != "world":
        return Lessons(visual, ())
    part = "dev" if split.endswith("dev") else "train" if split in (config.train_split, "train") else "test"
    return Lessons(visual, metaconcept_questions(part), metaconcept_questions("dev") if part == "train" else None)


def prepare_lessons(train: Lessons, settings: ConceptsConfig) -> Prepared:
    """The questions' words, and the concepts, attributes with their values, and relations of their programs."""
    visual = train.visual
    asked: dict[str, dict[str, None]] = {"concepts": {}, "attributes": {}, "relations": {}}
    values: dict[str, dict[str, None]] = {}
    for program, answers in zip(visual.programs, visual.answers, strict=True):
        for step in program:
            if words := KINDS[step.op].words if step.op in KINDS else "":
                asked[words][step.argument] = None
        if program[-1].op == "query":
            values.setdefault(program[-1].argument, {})[answers[0]] = None
    concepts = {*asked["concepts"], *(value for own in values.values() for value in own)}
    concepts |= {word for question in train.metaconcepts for word in (question.first, question.second)}
    attributes = [(name, *sorted(values.get(name, {}))) for name in sorted(asked["attributes"])]
    read = prepare_words((*visual.texts, *(q.text for q in train.metaconcepts)), settings.min_count)
    widths = {"region_dim": visual.pictures.regions.dim} if hasattr(visual.images, "dim") else {}
    lexicon = {"concepts": sorted(concepts), "attributes": attributes, "relations": sorted(asked["relations"])}
    counts = f"{len(concepts)} concepts, {len(attributes)} attributes, {len(asked['relations'])} relations"
    return replace(
        read,
        widths=widths,
        extractor=visual.pictures.extractor,
        notes=(*read.notes, counts),
        facts={**read.facts, **lexicon},
    )


def build_learner(kind: type[ConceptLearner], config: Any, prepared: Prepared) -> ConceptLearner:
    """A fresh model that knows the concepts of the training split."""
    facts = prepared.facts
    known = {
        "concepts": tuple(facts["concepts"]),
        "attributes": tuple(tuple(row) for row in facts["attributes"]),
        "relations": tuple(facts["relations"]),
    }
    return build_model(kind, replace(config, **known), prepared)


@dataclass(frozen=True)
class LessonBatch(Batch):
    """Programs about pictures: program q is about picture `owner[q]` of the batch."""

    images: RegionBatch | PictureBatch
    owner: tuple[int, ...]
    programs: tuple[Program, ...]
    answers: tuple[str, ...]
    pairs: Int[Tensor, "pair 2"]  # of concepts
    metaconcepts: Int[Tensor, " pair"]
    holds: Int[Tensor, " pair"]  # 1: yes


class ConceptTask:
    """Every question of the training split, with the picture it is about and some questions about concepts."""

    def __init__(
        self, model: ConceptLearner, train: Lessons, dev: Lessons, config: ConceptsConfig, augmentation: AugmentConfig
    ) -> None:
        self.train, self.dev, self.config, self.augmentation = train, dev, config, augmentation
        self.selection = "accuracy" if config.visual_weight else "metaconcepts"
        rows = pair_rows(model, train.metaconcepts) if config.metaconcept_batch and config.metaconcept_weight else []
        if not (rows or config.visual_weight):
            raise SaccadeError("task.visual_weight=0 leaves the questions about concepts, and there are none to learn")
        self.meta = torch.tensor(rows, dtype=torch.long).view(-1, 4)

    def __len__(self) -> int:
        return len(self.train.visual.texts)

    def batch(self, indices: Sequence[int]) -> LessonBatch:
        visual = self.train.visual
        pictures, owner = np.unique(visual.pictures.image_of_text[list(indices)], return_inverse=True)
        # indices come in random order: so do the questions about concepts
        places = (
            [index % len(self.meta) for index in indices[: self.config.metaconcept_batch]] if len(self.meta) else []
        )
        meta = self.meta[places]
        return LessonBatch(
            visual.images.batch(pictures.tolist()),
            tuple(owner.tolist()),
            tuple(visual.programs[index] for index in indices),
            tuple(visual.answers[index][0] for index in indices),
            *(meta[:, 1:3], meta[:, 0], meta[:, 3]),
        )

    def loss(self, model: ConceptLearner, batch: LessonBatch, step: int) -> Loss:
        scene, figures = None, dict[str, Tensor]()
        total = batch.pairs.new_zeros((), dtype=torch.get_default_dtype())
        if self.config.visual_weight:
            scene = model.encode_scene(model.extract(vary_images(model, batch.images, self.augmentation)))
            visual = self.visual_loss(model.execute(scene, batch.programs, batch.owner), batch, step)
            figures["visual_loss"] = visual.detach()
            total = total + self.config.visual_weight * visual
        if len(batch.pairs):
            logits = model.metaconcepts(*batch.pairs.T).gather(1, batch.metaconcepts[:, None])[:, 0]
            meta = F.binary_cross_entropy_with_logits(logits, batch.holds.to(logits.dtype))
            figures["metaconcept_loss"] = meta.detach()
            total = total + self.config.metaconcept_weight * meta
        for name, extra in model.own_losses(scene).items():
            figures[name] = extra.detach()
            total = total + extra
        return total, figures

    def visual_loss(self, execution: Execution, batch: LessonBatch, step: int) -> Float[Tensor, ""]:
        """The mean over questions; in the first steps, over those whose programs are short enough."""
        losses = execution.losses(batch.answers)
        if step >= self.config.short_first:
            return losses.mean()
        longest = 3 + 6 * step / self.config.short_first
        counts = torch.tensor([float(len(program) <= longest) for program in batch.programs], device=losses.device)
        return (losses * counts).sum() / counts.sum().clamp(min=1)

    def evaluate(self, model: ConceptLearner) -> dict[str, float]:
        return ConceptAccuracy().evaluate(model, self.dev, self.config)


def pair_rows(model: ConceptLearner, questions: Iterable[MetaQuestion]) -> list[tuple[int, int, int, int]]:
    """(metaconcept, first, second, whether it holds) of the questions whose concepts the model knows."""
    places = model.lexicon.places["concepts"]
    return [
        (METACONCEPTS.index(q.kind), places[q.first], places[q.second], int(q.answer == "yes"))
        for q in questions
        if q.first in places and q.second in places
    ]


@torch.no_grad()
def execute_all(model: ConceptLearner, data: Questions[CaptionedImages], batch_size: int) -> Iterator[Execution]:
    """Every program of a split, some at a time; one with words that a model does not know has no answer."""
    device = next(model.parameters()).device
    for first in range(0, len(data.texts), batch_size):
        part = list(range(first, min(first + batch_size, len(data.texts))))
        pictures, owner = np.unique(data.pictures.image_of_text[part], return_inverse=True)
        regions = model.extract(data.images.batch(pictures.tolist()).to(device))
        yield model.execute(regions, [known_program(model, data.programs[n]) for n in part], owner.tolist())


def known_program(model: ConceptLearner, program: Program) -> Program:
    try:
        model.lexicon.compiled(program)
    except SaccadeError:
        return program[:1]  # the scene, which is no answer
    return program


def parsed_lessons(parser: ProgramParser, data: Lessons) -> tuple[Lessons, dict[str, float]]:
    """The split with programs that a parser makes of its questions, and how many of them are the true ones."""
    said = parse_all(parser, data.visual.texts)
    right = [program == true for program, true in zip(said, data.visual.programs, strict=True)]
    programs = tuple(program or (Step("scene"),) for program in said)  # all things, which is no answer
    return replace(data, visual=replace(data.visual, programs=programs)), {
        "parsed_exactly": 100 * float(np.mean(right))
    }


def visual_figures(right: np.ndarray, kinds: Sequence[str]) -> dict[str, float]:
    found = by_kind(100 * right, kinds)
    figures = {"accuracy": 100 * float(right.mean()) if len(right) else 0.0}
    figures["mean_kind"] = float(np.mean(list(found.values()))) if found else 0.0
    return figures | {f"accuracy_{kind}": value for kind, value in found.items()}


def metaconcept_figures(right: np.ndarray, kinds: Sequence[str]) -> dict[str, float]:
    found = by_kind(100 * right, kinds)
    own = {f"metaconcepts_{kind}": found[kind] for kind in METACONCEPTS if kind in found}
    return {"metaconcepts": 100 * float(right.mean()), **own}


def most_frequent(data: Lessons) -> dict[str, float]:
    """The figures of whoever says, to every question, what is true of most of its kind."""
    visual, asked = data.visual, data.to_evaluate
    said = majority(visual, [answer for answers in visual.answers for answer in answers])
    right = np.array([word in answers for word, answers in zip(said, visual.answers, strict=True)], dtype=np.float64)
    if not asked:
        return visual_figures(right, visual.kinds)
    true, kinds = np.array([question.answer == "yes" for question in asked]), [question.kind for question in asked]
    likely = by_kind(true, kinds)
    right_of_pairs = np.array([likely[kind] >= 0.5 for kind in kinds]) == true
    return visual_figures(right, visual.kinds) | metaconcept_figures(right_of_pairs, kinds)


def in_table(name: str) -> str:
    """A figure as a user reads it."""
    for part in ("accuracy_", "metaconcepts_"):
        if name.startswith(part):
            return f"… {name.removeprefix(part).replace('_', ' ')}"
    return {"mean_kind": "mean of all kinds", "metaconcepts": "about concepts"}.get(name, name.replace("_", " "))


class ConceptAccuracy(Evaluator[ConceptLearner, Lessons]):
    """Accuracy in per cent, of visual questions and of questions about concepts."""

    metrics: ClassVar = {
        "accuracy": "accuracy",
        "mean_kind": "mean over kinds of question",
        "metaconcepts": "accuracy of metaconcept questions",
    }
    metric = "accuracy"
    columns = ("accuracy", "mean_kind", "metaconcepts")
    unit = "Accuracy in per cent"

    def evaluate(self, model: ConceptLearner, data: Lessons, settings: Any) -> dict[str, float]:
        return self.figures(model, data, self.each(model, data, settings))

    def each(self, model: ConceptLearner, data: Lessons, settings: Any) -> np.ndarray:
        """Which visual questions are answered rightly."""
        training = model.training
        model.eval()
        try:
            said = [
                word
                for execution in execute_all(model, data.visual, settings.eval_batch)
                for word in execution.answers()
            ]
        finally:
            model.train(training)
        right = [word in answers for word, answers in zip(said, data.visual.answers, strict=True)]
        return np.array(right, dtype=np.float64)

    @torch.no_grad()
    def figures(self, model: ConceptLearner, data: Lessons, each: np.ndarray) -> dict[str, float]:
        rows = torch.tensor(pair_rows(model, data.to_evaluate), device=model.members.device).view(-1, 4)
        if not len(rows) or type(model).metaconcepts is ConceptLearner.metaconcepts:
            return visual_figures(each, data.visual.kinds)
        logits = model.metaconcepts(rows[:, 1], rows[:, 2]).gather(1, rows[:, :1])[:, 0]
        right = (logits > 0) == (rows[:, 3] == 1)
        kinds = [METACONCEPTS[place] for place in rows[:, 0].tolist()]
        return visual_figures(each, data.visual.kinds) | metaconcept_figures(right.cpu().numpy(), kinds)

    def measure(self, model: ConceptLearner, data: Lessons, settings: Any, folder: Path, tables: bool) -> Arrays:
        """Questions of one picture are not independent: a picture's part is that of all its questions."""
        each = self.each(model, data, settings)
        found = self.figures(model, data, each) | self.counts(data, settings)
        parts = np.zeros(len(data.visual.images))
        np.add.at(parts, data.visual.pictures.image_of_text, mean_parts(each))
        return {**{name: np.asarray(value) for name, value in found.items()}, f"{PART}accuracy": parts}

    def counts(self, data: Lessons, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.visual.images), "texts": len(data.visual.texts)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every figure, a column for every model, beside the most frequent answer of each kind; programs are
        the true ones, or a parser's."""
        options: EvalOptions = request.options
        parser = load_model(options.parser, ProgramParser).to(request.device) if options.parser is not None else None
        splits = SplitForModels(request.data, request.split)
        found: dict[str, dict[str, float]] = {}
        data: Lessons | None = None
        for folder in request.models:
            model = load_model(folder, ConceptLearner).to(request.device)
            data = splits.regions_for(model, folder)
            assert data is not None
            found.setdefault("most frequent", most_frequent(data))
            asked, exact = (data, {}) if parser is None else parsed_lessons(parser, data)
            found[folder] = self.evaluate(model, asked, request.settings.get(folder, ConceptsConfig())) | exact
        assert data is not None
        visual = data.visual
        names = dict.fromkeys(name for figures in found.values() for name in figures)
        return Evaluation(
            f"{visual.pictures.name}/{visual.pictures.split}: {len(visual.images)} pictures, "
            f"{len(visual.texts)} questions, "
            f"{len(data.to_evaluate)} about concepts; per cent",
            ("questions", *found),
            tuple(
                (in_table(name), *(f"{figures[name]:.1f}" if name in figures else "–" for figures in found.values()))
                for name in names
            ),
            {"data": visual.pictures.name, "split": visual.pictures.split, "results": found},
        )


SPEC: TaskSpec[ConceptLearner, Lessons] = TaskSpec(
    name="concepts",
    noun="concept learner",
    does="answers questions by executing programs",
    protocol=ConceptLearner,
    config=ConceptsConfig,
    open=open_lessons,
    prepare=prepare_lessons,
    task=ConceptTask,
    evaluator=ConceptAccuracy(),
    predictor=ConceptAnswerer,
    verbs=("ask",),
    options=EvalOptions,
    next_steps=("saccade eval {run}", 'saccade ask PICTURE "what colour is the cube?" --model {run} -o steps.png'),
    build=build_learner,
)
