"""Parsing: questions into programs. No picture is needed; a program is right if all its steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import UNKNOWN, Batch, Program, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.registry import open_records
from saccade.language.vocabulary import SPECIAL
from saccade.metrics.answers import by_kind
from saccade.models import load_model
from saccade.models.program_parser import ProgramParser, step_word
from saccade.tasks.base import Loss, TaskSpec
from saccade.tasks.evaluator import EvalRequest, Evaluation, Evaluator
from saccade.tasks.parsing import EvalOptions
from saccade.tasks.predict import Predictor
from saccade.tasks.prepare import Prepared, build_model, prepare_words
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.augment import AugmentConfig
from saccade.world.questions.programs import spelled

SURE = 0.5  # the probability from which a program is believed


@dataclass(frozen=True)
class ParsingConfig:
    """What a parser learns from."""

    min_count: int = 1  # rarer words of the training questions are unknown words
    word_dropout: float = 0.05  # of the words in training are unknown: so that one new word does no harm
    eval_batch: int = 512  # questions parsed at once

    def __post_init__(self) -> None:
        check_ranges(self, "min_count eval_batch", "at least 1")
        if not 0 <= self.word_dropout < 1:
            raise SaccadeError(f"word_dropout must be 0 or more and below 1, not {self.word_dropout:g}")


@dataclass(frozen=True)
class ParsedQuestions:
    """A split: questions with their kinds and programs, and which picture each is about."""

    name: str
    split: str
    texts: tuple[str, ...]
    kinds: tuple[str, ...]
    programs: tuple[Program, ...]
    owners: tuple[int, ...]

    @property
    def images(self) -> range:
        """The pictures by number: a part that is held out is one of pictures."""
        return range(max(self.owners, default=-1) + 1)

    def select(self, positions: Sequence[int]) -> ParsedQuestions:
        """The questions about the pictures at `positions`."""
        chosen = frozenset(positions)
        kept = [n for n, owner in enumerate(self.owners) if owner in chosen]
        return replace(
            self,
            texts=tuple(self.texts[n] for n in kept),
            kinds=tuple(self.kinds[n] for n in kept),
            programs=tuple(self.programs[n] for n in kept),
            owners=tuple(self.owners[n] for n in kept),
        )


def open_parses(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> ParsedQuestions:
    """Raises: SaccadeError if the questions of this data set have no programs."""
    found = open_records(config, split, "questions")
    if not found.programs:
        raise SaccadeError(f"{config.name} has questions without programs: there is nothing for a parser to learn")
    owners = tuple(found.pictures.image_of_text.tolist())
    whole = ParsedQuestions(found.pictures.name, split, found.texts, found.kinds, found.programs, owners)
    return whole if config.limit is None else whole.select(range(config.limit))


def prepare_parses(train: ParsedQuestions, settings: ParsingConfig) -> Prepared:
    """The questions' words and the programs' steps."""
    read = prepare_words(train.texts, settings.min_count)
    steps = tuple(sorted({step_word(step) for program in train.programs for step in program}))
    facts = {**read.facts, "steps": len(steps)}
    return replace(read, labels=steps, notes=(*read.notes, f"{len(steps)} steps"), facts=facts)


def build_parser(kind: type[ProgramParser], config: Any, prepared: Prepared) -> ProgramParser:
    """A fresh model that knows the steps of the training programs."""
    return build_model(kind, replace(config, steps=prepared.labels), prepared)


@dataclass(frozen=True)
class ParseBatch(Batch):
    questions: TextBatch
    target: Int[Tensor, "text step"]


class ParsingTask:
    """Every question of the training split."""

    selection = "accuracy"

    def __init__(
        self,
        model: ProgramParser,
        train: ParsedQuestions,
        dev: ParsedQuestions,
        config: ParsingConfig,
        augmentation: AugmentConfig,
    ) -> None:
        self.dev, self.config = dev, config
        self.questions, self.target = model.read(train.texts), model.target(train.programs)

    def __len__(self) -> int:
        return len(self.target)

    def batch(self, indices: Sequence[int]) -> ParseBatch:
        target = self.target[list(indices)]
        longest = int((target != 0).sum(dim=1).max()) + 1
        return ParseBatch(replace(self.questions.select(indices), words=()).trimmed(), target[:, :longest])

    def loss(self, model: ProgramParser, batch: ParseBatch, step: int) -> Loss:
        tokens = batch.questions.tokens
        lost = (torch.rand(tokens.shape, device=tokens.device) < self.config.word_dropout) & (tokens >= len(SPECIAL))
        questions = replace(batch.questions, tokens=tokens.masked_fill(lost, UNKNOWN))
        return model.loss(questions, batch.target), {}

    def evaluate(self, model: ProgramParser) -> dict[str, float]:
        return ParseAccuracy().evaluate(model, self.dev, self.config)


def parse_all(model: ProgramParser, texts: Sequence[str], batch_size: int = 512) -> list[Program | None]:
    """The program of every question; None where what was said is none."""
    was_training = model.training
    model.eval()
    try:
        parts = (texts[first : first + batch_size] for first in range(0, len(texts), batch_size))
        return [parsed.program for part in parts for parsed in model.parse(part)]
    finally:
        model.train(was_training)


class ParseAccuracy(Evaluator[ProgramParser, ParsedQuestions]):
    """Programs that are the true ones, in per cent."""

    metrics: ClassVar = {"accuracy": "exact match of programs", "valid": "programs that can be executed"}
    metric = "accuracy"
    columns = ("accuracy", "valid")
    unit = "Exact match in per cent"

    def evaluate(self, model: ProgramParser, data: ParsedQuestions, settings: Any) -> dict[str, float]:
        said = parse_all(model, data.texts, settings.eval_batch)
        right = np.array([one == true for one, true in zip(said, data.programs, strict=True)], dtype=np.float64)
        figures = {"accuracy": _mean(right), "valid": _mean(np.array([one is not None for one in said], np.float64))}
        return figures | {f"accuracy_{kind}": value for kind, value in by_kind(100 * right, data.kinds).items()}

    def counts(self, data: ParsedQuestions, settings: Any) -> dict[str, int]:
        return {"texts": len(data.texts)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every figure, a column for every parser."""
        data = open_parses(request.data, request.split)
        found = {
            folder: self.evaluate(
                load_model(folder, ProgramParser).to(request.device),
                data,
                request.settings.get(folder, ParsingConfig()),
            )
            for folder in request.models
        }
        names = dict.fromkeys(name for figures in found.values() for name in figures)
        return Evaluation(
            f"{data.name}/{data.split}: {len(data.texts)} questions; exact match of programs, per cent",
            ("programs", *found),
            tuple((name, *(f"{figures.get(name, 0):.1f}" for figures in found.values())) for name in names),
            {"data": data.name, "split": data.split, "results": found},
        )


def _mean(values: Float[np.ndarray, " question"]) -> float:
    return 100 * float(values.mean()) if len(values) else 0.0


def _parsed(reader: ProgramReader, image: Any, text: str, top: int) -> Outcome:
    return Outcome((Line(spelled(reader.parse(text))),))


class ProgramReader(Predictor[ProgramParser]):
    """A trained parser: a question in, a program out."""

    uses = (Use("parse", "Make a program of a question", "none", _parsed, "question", "what colour is the cube?"),)

    def parse(self, question: str) -> Program:
        """Raises: SaccadeError if no program can be made of the question, or none that the parser is sure of."""
        self.model.vocabulary.check(question)
        parsed = self.model.parse([question])[0]
        if parsed.program is None:
            raise SaccadeError(f'no program can be made of "{question}": ask it in other words')
        if parsed.probability < SURE:
            raise SaccadeError(
                f'the parser is not sure what "{question}" asks ({100 * parsed.probability:.0f} % for '
                f"{spelled(parsed.program)}): ask it in other words"
            )
        return parsed.program


SPEC: TaskSpec[ProgramParser, ParsedQuestions] = TaskSpec(
    name="parsing",
    noun="parser",
    does="makes programs of questions",
    protocol=ProgramParser,
    config=ParsingConfig,
    open=open_parses,
    prepare=prepare_parses,
    task=ParsingTask,
    evaluator=ParseAccuracy(),
    predictor=ProgramReader,
    verbs=("ask",),
    options=EvalOptions,
    next_steps=("saccade eval {run}", "saccade eval runs/vcml --parser {run}"),
    build=build_parser,
)
