"""A trained concept learner with pictures and questions: what it answers, and the steps that lead there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import Program, RegionBatch, Step
from saccade.core.errors import SaccadeError
from saccade.explain.panels.concept_map import ConceptMap, grouped
from saccade.explain.panels.program import ProgramPicture, StepPicture
from saccade.models import ConceptLearner
from saccade.nn.programs import CONCEPT, KINDS, NUMBER, THINGS, TRUTH, Execution
from saccade.tasks.parsing.task import ProgramReader
from saccade.tasks.predict import Answer, Predictor, QuestionPredictor, given_picture
from saccade.vision.pictures import Picture, as_array
from saccade.world.questions.metaconcepts import CONCEPTS, MetaQuestion, parse_metaconcept
from saccade.world.questions.wording import parse_question

# Steps in words; {0} and {1} are the numbers of the steps they take
STEP_WORDS = {
    "scene": "all things",
    "filter": "{word} in {0}",
    "relate": "{word} {0}",
    "same": "same {word} as {0}",
    "union": "{0} or {1}",
    "intersect": "both {0} and {1}",
    "exist": "any in {0}?",
    "count": "how many in {0}?",
    "query": "which {word} is {0}?",
    "equal": "same {word}, {0} and {1}?",
    "more": "more in {0} than in {1}?",
    "fewer": "fewer in {0} than in {1}?",
    "as_many": "as many in {0} as in {1}?",
    "and": "{0} and {1}?",
    "or": "{0} or {1}?",
    "not": "not {0}?",
}


def in_words(step: Step) -> str:
    """A step with the numbers of those before it, counted from one: "left of 2"."""
    return STEP_WORDS[step.op].format(*(place + 1 for place in step.inputs), word=step.argument)


@dataclass(frozen=True)
class Verdict:
    """An answer, how likely it is, and how it was found; `answers` has the others too."""

    text: str
    probability: float
    program: Program = ()
    execution: Execution | None = None
    answers: tuple[Answer, ...] = ()


class ConceptAnswerer(QuestionPredictor[ConceptLearner]):
    """A trained concept learner: programs are executed on pictures; questions about concepts need none."""

    uses = (replace(QuestionPredictor.uses[0], medium_optional=True, example="what colour is the large cube?"),)
    parser: ProgramReader | None = None  # makes programs of questions; none: the world's grammar does

    def use_parser(self, parser: Predictor[Any]) -> None:
        if not isinstance(parser, ProgramReader):
            raise SaccadeError(f"{parser.model.name} is no parser: it makes no programs of questions")
        self.parser = parser

    def read(self, question: str) -> Program:
        """What a question about a picture asks. Raises: SaccadeError if it cannot be told."""
        if self.parser is not None:
            return self.parser.parse(question)
        program = parse_question(question)
        if program is None:
            raise SaccadeError(
                f'"{question}" is not worded as the questions that can be read here, such as "what colour is the large '
                'cube?" (`saccade world questions` shows more)'
            )
        return program

    def ask(self, image: Picture | RegionBatch | None, question: str, top: int = 5) -> list[Answer]:
        """The likeliest answers, best first, with the steps of the program; top=0 is all."""
        if parse_metaconcept(question) is not None:
            return list(self.relate(question).answers[: top or None])
        program = self.read(question)
        return list(self.run(given_picture(image, question), program).answers[: top or None])

    @torch.no_grad()
    def run(self, image: Picture | RegionBatch, program: Program) -> Verdict:
        """The answer of a program, with the results of its steps. Raises: SaccadeError if it is no program."""
        execution = self.model.execute(self.extract(image if isinstance(image, RegionBatch) else [image]), [program])
        said, chances = execution.answers()[0], answer_chances(execution)
        steps = tuple(
            f"{in_words(step)} → {self._result(execution, number)}" for number, step in enumerate(execution.programs[0])
        )
        order = sorted(chances, key=lambda text: (text != said, -chances[text]))
        answers = tuple(Answer(text, chances[text], steps) for text in order)
        return Verdict(said, chances.get(said, 1.0), program, execution, answers)

    def _result(self, execution: Execution, number: int) -> str:
        """What a step gave, in words."""
        kind, found = KINDS[execution.programs[0][number].op].result, execution.steps(0)[number]
        if kind == THINGS:
            count = int((found > 0).sum())
            return f"{count} thing{'s' if count != 1 else ''}"
        if kind == NUMBER:
            return str(round(float(found)))
        if kind == TRUTH:
            chance = float(found.sigmoid())
            return f"{'yes' if chance > 0.5 else 'no'}, {100 * max(chance, 1 - chance):.0f} %"
        shares = found.softmax(dim=0)
        return f"{self.model.lexicon.concepts[int(shares.argmax())]}, {100 * float(shares.max()):.0f} %"

    @torch.no_grad()
    def relate(self, question: str) -> Verdict:
        """The answer to a question about two concepts. Raises: SaccadeError if it is none."""
        asked = _about_concepts(question)
        chance = float(self.model.metaconcept(asked.kind, asked.first, asked.second).sigmoid())
        answers = sorted((Answer("yes", chance), Answer("no", 1 - chance)), key=lambda answer: -answer.probability)
        return Verdict(answers[0].text, answers[0].probability, answers=tuple(answers))

    def why(self, image: Picture | None, question: str) -> ProgramPicture | ConceptMap:
        """The executed program on the picture; for a question about two concepts, the map of all."""
        if parse_metaconcept(question) is not None:
            return self.concept_map(question)
        picture = as_array(given_picture(image, question))
        verdict = self.run(self.extract([picture]), self.read(question))
        assert verdict.execution is not None
        answer = f"{verdict.text}, {100 * verdict.probability:.0f} %"
        boxes = self.extract([picture]).boxes[0].cpu().numpy()
        return ProgramPicture(picture, boxes, question, answer, self._step_pictures(verdict.execution))

    def _step_pictures(self, execution: Execution) -> tuple[StepPicture, ...]:
        """A step that gives no things is lit by those that it looked at."""
        found: list[np.ndarray] = []
        results = execution.steps(0)
        pictures = []
        for number, step in enumerate(execution.programs[0]):
            things = KINDS[step.op].result == THINGS
            if things:
                found.append(results[number].sigmoid().cpu().numpy())
            else:
                found.append(np.max([found[place] for place in step.inputs], axis=0))
            result = "" if things else self._result(execution, number)
            pictures.append(StepPicture(in_words(step), found[-1], result))
        return tuple(pictures)

    @torch.no_grad()
    def concept_map(self, question: str = "") -> ConceptMap:
        """Pr(a | b) of all concepts, grouped by kind; the two that a question is about are marked.

        Raises: SaccadeError if the model has no such probabilities, or the question is none about concepts.
        """
        words = self.model.lexicon.concepts
        chances = self.model.probabilities().cpu().numpy()
        asked = [_about_concepts(question)[1:3]] if question else []
        order, groups = grouped(words, [self._group(word) for word in words])
        marked = tuple(order.index(words.index(word)) for pair in asked for word in pair if word in words)
        return ConceptMap(chances[np.ix_(order, order)], tuple(words[n] for n in order), groups, question, marked)

    def _group(self, word: str) -> tuple[str, str]:
        """The kind of a concept, and by what it stands beside others of its kind: words that mean the same together."""
        if word in CONCEPTS:
            concept = CONCEPTS[word]
            kind = concept.attribute if concept.level == "basic" else f"{concept.attribute}: {concept.level}"
            return kind, min(concept.values)
        rows = self.model.config.attributes
        return next((name for name, *values in rows if word in values), "other"), word


def _about_concepts(question: str) -> MetaQuestion:
    asked = parse_metaconcept(question)
    if asked is None:
        raise SaccadeError(f'"{question}" is no question about two concepts: "is red the same kind of thing as green?"')
    return asked


def answer_chances(execution: Execution) -> dict[str, float]:
    """The probability of every answer that the one program of an execution may have; none where it ends in things.

    The things of a set are there or not independently of each other: what is counted has the distribution of the sum.
    """
    last, results = execution.programs[0][-1], execution.steps(0)
    kind = KINDS[last.op].result
    if kind == CONCEPT:
        logits = execution.concepts[0]
        members = dict(zip(execution.lexicon.concepts, logits.softmax(dim=0).tolist(), strict=True))
        return {word: chance for word, chance in members.items() if chance > 1e-6}
    if kind == NUMBER:
        return {str(n): chance for n, chance in enumerate(sum_distribution(results[last.inputs[0]]).tolist())}
    if kind != TRUTH:
        return {}
    chance = float(execution.values[0].sigmoid())  # as the steps tell it
    return {"yes": chance, "no": 1 - chance}


def sum_distribution(logits: Float[Tensor, " region"]) -> Float[Tensor, " number"]:
    """How likely 0, 1, … of the regions belong to a set."""
    chances = logits.double().sigmoid()
    numbers = torch.zeros(len(chances) + 1, dtype=torch.float64, device=chances.device)
    numbers[0] = 1
    for chance in chances:
        moved = torch.cat([numbers.new_zeros(1), numbers[:-1]])
        numbers = numbers * (1 - chance) + moved * chance
    return numbers
