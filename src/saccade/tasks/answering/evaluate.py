"""How good answerers are: accuracy of all questions and of each kind, WUPS, and what they answered as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import UNKNOWN, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.files import check_writable
from saccade.data.formats.answers import write_answers
from saccade.data.records import CaptionedImages, Questions
from saccade.language.wordnet import Nouns, load_nouns
from saccade.metrics.answers import answer_scores, by_kind, frequent_answers, score_answers
from saccade.metrics.wups import wups_scores
from saccade.models import Answerer, load_model
from saccade.tasks.answering import EvalOptions
from saccade.tasks.evaluator import (
    PART,
    Arrays,
    EvalRequest,
    Evaluation,
    Evaluator,
    SplitForModels,
    mean_parts,
    results_files,
)

QuestionSplit = Questions[CaptionedImages]


def shown_pictures(images: Any, shown: str) -> Any:
    """Without pictures, what stands for them is one region of ones (or nothing but black).

    Not of zeros: a model that multiplies the picture with the question would hardly learn from the question, and the
    floor would be too low.
    """
    if shown not in ("question", "hypothesis"):
        return images
    if not isinstance(images, RegionBatch):
        return replace(images, pixels=torch.zeros_like(images.pixels))
    one = images.features[:, :1]
    return RegionBatch(torch.ones_like(one), torch.ones_like(images.mask[:, :1]), images.boxes[:, :1], images.ids)


def shown_questions(questions: TextBatch, shown: str) -> TextBatch:
    """Without questions, what stands for them is one unknown word."""
    if shown != "picture":
        return questions
    token = torch.full_like(questions.tokens[:, :1], UNKNOWN)
    return TextBatch(token, torch.ones_like(token, dtype=torch.bool))


@torch.no_grad()
def answer_all(model: Answerer, data: QuestionSplit, batch_size: int = 256, shown: str = "both") -> list[str]:
    """The likeliest answer to every question of a split, in order."""
    device = next(model.parameters()).device
    was_training, said = model.training, []
    model.eval()
    owners = data.pictures.image_of_text
    try:
        for first in range(0, len(data.texts), batch_size):
            part = range(first, min(first + batch_size, len(data.texts)))
            pictures, place = np.unique(owners[list(part)], return_inverse=True)
            images = shown_pictures(data.images.batch(pictures.tolist()).to(device), shown)
            questions = shown_questions(model.read_questions([data.texts[i] for i in part]).to(device), shown)
            regions = model.extract(images).select(place)
            said += [model.answers[i] for i in model.answer(regions, questions).logits.argmax(dim=1).tolist()]
        return said
    finally:
        model.train(was_training)


def needed_nouns() -> Nouns:
    """Raises: SaccadeError if WordNet is not installed."""
    found = load_nouns()
    if found is None:
        raise SaccadeError("WUPS compares words by WordNet's nouns, which are not here: pip install 'saccade[wordnet]'")
    return found


def majority(data: QuestionSplit, answers: Sequence[str]) -> list[str]:
    """To every question the answer that most questions of its kind have, of those that a model knows."""
    known, best = frozenset(answers), {}
    for kind in set(data.kinds):
        own = [given for given, other in zip(data.answers, data.kinds, strict=True) if other == kind]
        best[kind] = next((answer for answer in frequent_answers(own) if answer in known), "")
    return [best[kind] for kind in data.kinds]


class AnswerAccuracy(Evaluator[Answerer, QuestionSplit]):
    """Accuracy in per cent: VQA accuracy where several people answered, else equality with the truth."""

    metrics: ClassVar = {"accuracy": "accuracy", "mean_kind": "mean over kinds of question"}
    metric = "accuracy"
    columns = ("accuracy", "mean_kind")
    unit = "Accuracy in per cent"

    def evaluate(self, model: Answerer, data: QuestionSplit, settings: Any) -> dict[str, float]:
        each = self.each(model, data, settings)
        kinds = by_kind(100 * each, data.kinds)
        figures = {"accuracy": 100 * float(each.mean()), **{f"accuracy_{kind}": value for kind, value in kinds.items()}}
        return figures | {"mean_kind": float(np.mean(list(kinds.values())))} if kinds else figures

    def each(self, model: Answerer, data: QuestionSplit, settings: Any) -> Float[np.ndarray, " question"]:
        """The score of every question."""
        scores = answer_scores(data.answers)
        headline = {name: scores[name] for name in list(scores)[:1]}
        said = answer_all(model, data, settings.eval_batch, settings.shown)
        return next(iter(score_answers(said, data.answers, headline).values()))

    def measure(self, model: Answerer, data: QuestionSplit, settings: Any, folder: Path, tables: bool) -> Arrays:
        """Questions of one picture are not independent: a picture's part is that of all its questions."""
        kept = super().measure(model, data, settings, folder, tables)
        parts = np.zeros(len(data.images))
        np.add.at(parts, data.pictures.image_of_text, mean_parts(self.each(model, data, settings)))
        return {**kept, f"{PART}accuracy": parts}

    def counts(self, data: QuestionSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.images), "texts": len(data.texts)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every figure, a column for every model, beside the most frequent answer of each kind."""
        from saccade.tasks.answering.task import AnsweringConfig

        options: EvalOptions = request.options
        kept = results_files(options.answers, request.models)
        check_writable(*kept.values())
        splits = SplitForModels(request.data, request.split)
        found: dict[str, dict[str, float]] = {}
        data: QuestionSplit | None = None
        for folder in request.models:
            model = load_model(folder, Answerer).to(request.device)
            data = splits.regions_for(model, folder)
            settings = request.settings.get(folder, AnsweringConfig())
            said = answer_all(model, data, settings.eval_batch, settings.shown)
            if not found:
                found["most frequent"] = self.figures(majority(data, model.answers), data, options.wups)
            found[folder] = self.figures(said, data, options.wups)
            if folder in kept:
                write_answers(kept[folder], dict(zip(data.ids, said, strict=True)))
        assert data is not None
        names = list(next(iter(found.values())))
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.images)} pictures, {len(data.texts)} questions; "
            "per cent",
            ("questions", *found),
            tuple((name, *(f"{figures[name]:.1f}" for figures in found.values())) for name in names),
            {"data": data.pictures.name, "split": data.pictures.split, "results": found},
        )

    def figures(self, said: Sequence[str], data: QuestionSplit, wups: bool) -> dict[str, float]:
        """Every figure of a split, and its headline for each kind of question."""
        scores = answer_scores(data.answers) | (wups_scores(needed_nouns()) if wups else {})
        found = score_answers(said, data.answers, scores)
        headline = next(iter(found.values()))
        figures = {name: 100 * float(values.mean()) for name, values in found.items()}
        return figures | {f"… {kind}": 100 * value for kind, value in by_kind(headline, data.kinds).items()}
