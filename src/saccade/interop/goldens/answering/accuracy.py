"""VQA accuracy and the normalisation of answers, against the official evaluator and two that systems bring along.

`cases.json` has questions with a prediction, what annotators said, and the figures of the evaluators;
`butd_preprocess_answer.json` has answers and what the re-implementation of Up-Down's VQA makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.harness import Case, Difference, Golden
from saccade.metrics.answers import normalise_answer, one_line, vqa_accuracy

QUESTIONS, NORMALISED = "cases.json", "butd_preprocess_answer.json"
INPUTS = ("question_id", "prediction", "answers", "question_type", "answer_type", "note")
OUTPUTS: dict[str, type | tuple[type, ...]] = {
    "expected_accuracy": (int, float),
    "dcn_repo_evaluator": (int, float),
    "normalised_prediction": str,
}
TOLERANCE = 1e-6


class AnswersCase:
    def __init__(self, folder: Path) -> None:
        self.case = Case("vqa_accuracy", {})
        self.questions: list[dict[str, Any]] = []
        self.texts: list[str] = []
        if (path := folder / QUESTIONS).is_file():
            self.questions, others = _read_questions(path)
            outputs = [key for key in self.questions[0] if key in OUTPUTS]
            self.case.stored |= {key: np.array([each[key] for each in self.questions]) for key in outputs}
            others += self.questions[0].keys() - {*INPUTS, *OUTPUTS}
            self.case.stored |= {key: np.asarray(0.0) for key in others}  # which nothing compares
        if (path := folder / NORMALISED).is_file():
            found = read_json(path)
            if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()) or not found:
                raise SaccadeError(f"{path}: answers and their normalised forms were expected")
            self.texts = list(found)
            self.case.stored["butd_preprocess_answer"] = np.array(list(found.values()))

    def accuracies(self, key: str, score: Callable[[str, list[str]], float]) -> dict[str, Difference]:
        stored = self.case.stored[key].tolist()
        return {
            f"{key} {each['question_id']}": Difference(abs(score(each["prediction"], each["answers"]) - expected))
            for each, expected in zip(self.questions, stored, strict=True)
        }

    def normalised(self, key: str, texts: list[str]) -> dict[str, Difference]:
        pairs = zip(texts, self.case.stored[key].tolist(), strict=True)
        wrong = sum(normalise_answer(text) != expected for text, expected in pairs)
        return {f"{key} (of {len(texts)} answers, those that differ)": Difference(float(wrong), 0.0)}

    def predictions(self) -> list[str]:
        return [one_line(each["prediction"]) for each in self.questions]


def _read_questions(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The cases, and what else the file holds."""
    content = read_json(path)
    found = content.get("cases") if isinstance(content, dict) else None
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise SaccadeError(f'{path}: "cases", a list of questions, was expected')
    for number, each in enumerate(found):
        where = f"{path}, cases[{number}]"
        said = each.get("answers")
        if (
            not isinstance(each.get("prediction"), str)
            or not isinstance(said, list)
            or not said
            or not all(isinstance(answer, str) for answer in said)
        ):
            raise SaccadeError(f'{where}: a "prediction" and the "answers" of annotators were expected')
        if each.keys() != found[0].keys() or "question_id" not in each:
            raise SaccadeError(f'{where} has not a "question_id" and the same keys as the first case')
        for key in each.keys() & OUTPUTS.keys():
            if not isinstance(each[key], OUTPUTS[key]):
                raise SaccadeError(f'{where}: "{key}" is not {"text" if OUTPUTS[key] is str else "a number"}')
    return found, [str(key) for key in content if key != "cases"]


def opens(folder: Path) -> Iterator[AnswersCase]:
    if (folder / QUESTIONS).is_file() or (folder / NORMALISED).is_file():
        yield AnswersCase(folder)


GOLDEN = Golden(
    "vqa_accuracy",
    opens,
    {
        "expected_accuracy": (lambda c: c.accuracies("expected_accuracy", vqa_accuracy), TOLERANCE),
        "dcn_repo_evaluator": (
            lambda c: c.accuracies("dcn_repo_evaluator", lambda said, given: vqa_accuracy(said, given, "dcn")),
            TOLERANCE,
        ),
        "normalised_prediction": (lambda c: c.normalised("normalised_prediction", c.predictions()), TOLERANCE),
        "butd_preprocess_answer": (lambda c: c.normalised("butd_preprocess_answer", c.texts), TOLERANCE),
    },
)
