"""Visual question answering: learn which answers people gave, of those that were given often enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Alignment, Batch, PictureBatch, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError, not_among
from saccade.data import DataConfig
from saccade.explain import Explanation
from saccade.features import open_questions
from saccade.metrics.answers import frequent_answers, soft_scores
from saccade.models import Answerer
from saccade.tasks.answering import EvalOptions
from saccade.tasks.answering.evaluate import AnswerAccuracy, QuestionSplit, shown_pictures, shown_questions
from saccade.tasks.base import MakeSampler, Sampler, TaskSpec
from saccade.tasks.pairs import about_each, vary_images
from saccade.tasks.predict import Answer, QuestionPredictor, given_picture
from saccade.tasks.prepare import Prepared, build_model, prepare_words
from saccade.vision.augment import AugmentConfig
from saccade.vision.pictures import Picture, as_array


@dataclass(frozen=True)
class AnsweringConfig:
    """Which answers a model may give, and what it is shown."""

    answer_min_count: int = 1  # an answer is known if it is that of so many training questions; 9 in VQA v2
    max_answers: int | None = None  # … the most frequent
    min_count: int = 1  # rarer words of the training questions are unknown words
    shown: Literal["both", "question", "picture"] = "both"  # one alone: the floor that seeing must beat
    repeated_kinds: tuple[str, ...] = ()  # kinds of question that come `repeats` times an epoch: what is learned last
    repeats: int = 4
    repeat_after: int = 0  # epochs, after which they do: when what they build on is known
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 256  # questions answered at once

    def __post_init__(self) -> None:
        check_ranges(self, "answer_min_count min_count repeats eval_batch", "at least 1")
        check_ranges(self, "repeat_after", "zero or more")


@dataclass(frozen=True)
class QuestionBatch(Batch):
    """Questions about pictures: question q is about picture `owner[q]` of the batch."""

    questions: TextBatch
    images: RegionBatch | PictureBatch
    owner: Int[Tensor, " question"]
    target: Float[Tensor, "question answer"]  # how right each known answer is


@dataclass(frozen=True)
class RepeatingSampler:
    """Every question once an epoch, and after some epochs of this some more often."""

    once: Sampler
    often: Sampler
    items: Int[np.ndarray, " item"]  # of `often`
    after: int  # steps

    @property
    def steps_per_epoch(self) -> int:
        return self.once.steps_per_epoch

    def indices(self, step: int) -> Sequence[int]:
        if step < self.after:
            found: Sequence[int] = self.once.indices(step)
        else:
            found = self.items[self.often.indices(step - self.after)].tolist()
        return found


class AnsweringTask:
    """Every question of the training split, with the picture it is about."""

    selection = "accuracy"

    def __init__(
        self,
        model: Answerer,
        train: QuestionSplit,
        dev: QuestionSplit,
        config: AnsweringConfig,
        augmentation: AugmentConfig,
    ) -> None:
        self.train, self.dev, self.config, self.augmentation = train, dev, config, augmentation
        self.questions = model.read_questions(train.texts)  # word ids are small: all questions at once
        if unknown := set(config.repeated_kinds) - set(train.kinds):
            raise SaccadeError(f"task.repeated_kinds has {not_among(min(unknown), sorted({*train.kinds} - {''}))}")
        place = {answer: n for n, answer in enumerate(model.answers)}
        self.answers = len(place)
        scored = [soft_scores(given) for given in train.answers]
        self.scores = [{place[a]: score for a, score in own.items() if a in place} for own in scored]

    def __len__(self) -> int:
        return len(self.train.texts)

    def sampler(self, make: MakeSampler) -> Sampler:
        once, config = make(len(self), None), self.config
        if not config.repeated_kinds:
            return once
        times = [config.repeats if kind in config.repeated_kinds else 1 for kind in self.train.kinds]
        items = np.repeat(np.arange(len(self)), times)
        return RepeatingSampler(once, make(len(items), None), items, config.repeat_after * once.steps_per_epoch)

    def batch(self, indices: Sequence[int]) -> QuestionBatch:
        pictures, owner = np.unique(self.train.pictures.image_of_text[list(indices)], return_inverse=True)
        target = torch.zeros(len(indices), self.answers)
        for row, index in enumerate(indices):
            for answer, score in self.scores[index].items():
                target[row, answer] = score
        questions = replace(self.questions.select(indices), words=()).trimmed()
        return QuestionBatch(
            questions, self.train.images.batch(pictures.tolist()), torch.as_tensor(owner, dtype=torch.long), target
        )

    def before_loss(self, model: Answerer, batch: QuestionBatch, step: int) -> QuestionBatch:
        return batch

    def graph_batch(self, model: Answerer, batch: QuestionBatch, step: int) -> QuestionBatch | None:
        """A picture for every question; its regions and the words padded to a multiple of four."""
        images, questions = batch.images, batch.questions
        if not isinstance(images, RegionBatch):
            return None
        about = about_each(images, batch.owner)
        return replace(
            batch,
            questions=questions.pad(-questions.mask.shape[1] % 4),
            images=about.pad(-about.mask.shape[1] % 4),
            owner=torch.arange(len(about), device=about.mask.device),
        )

    def loss(self, model: Answerer, batch: QuestionBatch, step: int) -> tuple[Tensor, dict[str, float]]:
        images = shown_pictures(vary_images(model, batch.images, self.augmentation), self.config.shown)
        about = about_each(model.extract(images), batch.owner)
        answered = model.answer(about, shown_questions(batch.questions, self.config.shown))
        return model.loss(answered.logits, batch.target), {}

    def evaluate(self, model: Answerer) -> dict[str, float]:
        return AnswerAccuracy().evaluate(model, self.dev, self.config)


def prepare_questions(train: QuestionSplit, settings: AnsweringConfig) -> Prepared:
    """The questions' words, the answers to choose from, and the width of the regions if the pictures come as such.

    Raises: SaccadeError if no answer is given often enough.
    """
    answers = frequent_answers(train.answers, settings.answer_min_count, settings.max_answers)
    if not answers:
        raise SaccadeError(f"no answer is that of task.answer_min_count={settings.answer_min_count} training questions")
    words = prepare_words((*train.texts, *answers), settings.min_count, settings.vectors)
    widths = {"region_dim": train.pictures.regions.dim} if hasattr(train.images, "dim") else {}
    covered = sum(any(a in answers for a in soft_scores(given)) for given in train.answers)
    note = f"{len(answers):,} answers, which {covered / max(len(train.texts), 1):.1%} of the training questions have"
    return replace(
        words,
        labels=answers,
        widths=widths,
        extractor=train.pictures.extractor,
        notes=(*words.notes, note),
        facts={**words.facts, "answers": len(answers)},
    )


def build_answerer(kind: type[Answerer], config: Any, prepared: Prepared) -> Answerer:
    """A fresh model that knows the answers of the training split."""
    return build_model(kind, replace(config, answers=prepared.labels), prepared)


def open_question_split(
    config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu"
) -> QuestionSplit:
    return open_questions(config, split, pixels, device)


SHOWN = 3  # answers that a picture names


class PictureAnswerer(QuestionPredictor[Answerer]):
    """A trained answerer: a picture and a question in, answers and what they came from out."""

    def read(self, question: str) -> TextBatch:
        self.model.vocabulary.check(question)
        return self.model.read_questions([question]).to(self.device)

    @torch.no_grad()
    def ask(self, image: Picture | RegionBatch | None, question: str, top: int = 5) -> list[Answer]:
        """The likeliest answers, best first; top=0 is all."""
        image = given_picture(image, question)
        regions = self.extract(image if isinstance(image, RegionBatch) else [image])
        logits = self.model.answer(regions, self.read(question)).logits
        chance = self.model.probabilities(logits)[0]
        order = chance.argsort(descending=True, stable=True)[: top or None].tolist()
        return [Answer(self.model.answers[i], float(chance[i])) for i in order]

    def why(self, image: Picture | None, question: str) -> Explanation:
        return self.explain(given_picture(image, question), question)

    @torch.no_grad()
    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        """Where each word of the question looked, if the model says so, and what the answer came from."""
        if text is None:
            raise SaccadeError("an answerer explains its answer to a question: give one after the picture")
        picture = as_array(image)
        regions, question = self.extract([picture]), self.read(text)
        answered = self.model.answer(regions, question)
        best = int(answered.logits.argmax())
        weights, words = answered.weights[:, None], [f"→ {self.model.answers[best]}"]
        if answered.alignment is not None:
            weights, words = torch.cat([answered.alignment, weights], dim=1), [*question.words[0], *words]
        chances = self.model.probabilities(answered.logits)[0]
        alignment = Alignment(weights, chances[[best]], weights.new_ones(1, len(words), dtype=torch.bool), regions.mask)
        likely = chances.argsort(descending=True, stable=True)[:SHOWN].tolist()
        told = " · ".join(f"{self.model.answers[n]} {100 * float(chances[n]):.0f} %" for n in likely)
        found = Explanation.from_alignment(
            alignment, 0, words, regions.boxes[0].cpu(), picture, title or f"{text}  {told}"
        )
        return replace(found, unknown=frozenset(self.model.vocabulary.unknown(text)) - {"?"})


SPEC: TaskSpec[Answerer, QuestionSplit] = TaskSpec(
    name="answering",
    noun="answerer",
    does="answers questions about pictures",
    protocol=Answerer,
    config=AnsweringConfig,
    open=open_question_split,
    prepare=prepare_questions,
    task=AnsweringTask,
    evaluator=AnswerAccuracy(),
    predictor=PictureAnswerer,
    verbs=("ask", "explain"),
    options=EvalOptions,
    next_steps=("saccade eval {run}", 'saccade ask PICTURE "what colour is it?" --model {run}'),
    build=build_answerer,
)
