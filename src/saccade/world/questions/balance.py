"""What a question's words alone, or its picture alone, say of the answer: to hold the world's questions to chance.

*Question only*: logistic regression on all runs of one to three words, for each kind of question, and before it a
memory of whole texts that had one answer only. *Picture only*: for each kind, least squares on what a scene has how
often.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import comb
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from saccade.world.catalogue import PREDICATES
from saccade.world.dice import Dice
from saccade.world.grammar import ATTRIBUTES
from saccade.world.questions.make import Question, ask
from saccade.world.questions.metaconcepts import WORDS
from saccade.world.sample import sample_scene
from saccade.world.scene import Scene
from saccade.world.store import WorldConfig

LONGEST = 3  # words in a run
REPEATED = 3  # times that a text must have had its one answer to be remembered


class AnsweredQuestion(Protocol):
    """A question about a picture, or about two concepts."""

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def answer(self) -> str: ...


class KindBalance(NamedTuple):
    """Of one kind of question: accuracies in per cent on questions that were not learned from."""

    kind: str
    questions: int
    answers: int
    uniform: float  # of guessing
    majority: float  # of the answer that is most frequent
    question_only: float


def drawn_scenes(config: WorldConfig, split: str, scenes: int) -> list[Scene]:
    """Scenes of a split that are drawn for this, and not painted."""
    wish = config.wish(split)
    return [sample_scene(Dice(config.seed, split, n), f"{split}-{n:06d}", wish) for n in range(scenes)]


def drawn_questions(config: WorldConfig, split: str, scenes: int) -> list[Question]:
    """Questions on scenes of a split that are drawn for this, and not painted."""
    wish = config.wish(split)
    return [question for scene in drawn_scenes(config, split, scenes) for question in ask(scene, wish)]


def picture_balance(config: WorldConfig, split: str, scenes: int) -> dict[str, float]:
    """Of each kind of question: accuracy, in per cent, of a picture-only model learned on as many scenes of train."""
    asked: list[list[tuple[Question, list[float]]]] = []
    for name in ("train", split):
        drawn = ((scene, _seen(scene)) for scene in drawn_scenes(config, name, scenes))
        asked.append([(question, seen) for scene, seen in drawn for question in ask(scene, config.wish(name))])
    accuracies = {}
    for kind in dict.fromkeys(question.kind for question, _ in asked[0]):
        learned, measured = ([row for row in rows if row[0].kind == kind] for rows in asked)
        if not measured:
            continue
        answers = {a: n for n, a in enumerate(sorted({question.answer for question, _ in learned}))}
        features, held_out = (np.array([seen for _, seen in rows]) for rows in (learned, measured))
        target = np.eye(len(answers))[[answers[question.answer] for question, _ in learned]]
        gram = features.T @ features
        weights = np.linalg.solve(gram + 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram)), features.T @ target)
        places = [answers.get(question.answer, -1) for question, _ in measured]
        accuracies[kind] = 100.0 * float(np.mean((held_out @ weights).argmax(1) == places))
    return accuracies


def _seen(scene: Scene) -> list[float]:
    """How many things, things of each value, pairs alike in each attribute and relations of each kind a scene has."""
    values = Counter(value for thing in scene.things for value in thing.identity)
    relations = Counter(relation.predicate for relation in scene.relations)
    alike = (comb(values[value], 2) for value in WORDS)
    pairs = [sum(comb(values[value], 2) for value in own) for own in ATTRIBUTES.values()]
    counts = [
        len(scene.things),
        *(values[value] for value in WORDS),
        *alike,
        *pairs,
        *(relations[p] for p in PREDICATES),
    ]
    return [1.0, *map(float, counts)]


def question_balance(
    train: Sequence[AnsweredQuestion], held_out: Sequence[AnsweredQuestion]
) -> tuple[KindBalance, ...]:
    """Each kind of question in the order in which they occur, learned from `train` and measured on `held_out`."""
    rows = []
    for kind in dict.fromkeys(q.kind for q in train):
        known, asked = ([q for q in part if q.kind == kind] for part in (train, held_out))
        if not asked:
            continue
        counts = Counter(q.answer for q in asked)
        right = np.mean([a == q.answer for a, q in zip(guess(known, asked), asked, strict=True)])
        shares = [100.0 / len(counts), 100.0 * max(counts.values()) / len(asked), 100.0 * float(right)]
        rows.append(KindBalance(kind, len(asked), len(counts), *shares))
    return tuple(rows)


def guess(known: Sequence[AnsweredQuestion], asked: Sequence[AnsweredQuestion]) -> list[str]:
    """The likeliest answer to each question from its words alone, after what is known."""
    answers = sorted({q.answer for q in known})
    counts = Counter(run for q in known for run in _runs(q.text))
    place = {run: n for n, run in enumerate((run for run, times in counts.items() if times > 1), start=1)}
    weights = torch.nn.EmbeddingBag(len(place) + 1, len(answers), mode="sum", padding_idx=0)
    torch.nn.init.zeros_(weights.weight)
    optimiser = torch.optim.Adagrad(weights.parameters(), lr=0.05)
    rows, target = _rows(known, place), torch.tensor([answers.index(q.answer) for q in known])
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        order = torch.randperm(len(rows), generator=generator)
        for start in range(0, len(rows), 128):
            batch = order[start : start + 128]
            loss = torch.nn.functional.cross_entropy(weights(rows[batch]), target[batch])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    with torch.no_grad():
        likeliest = weights(_rows(asked, place)).argmax(1).tolist()
    told: dict[str, Counter[str]] = defaultdict(Counter)
    for q in known:
        told[q.text][q.answer] += 1
    memory = {text: next(iter(a)) for text, a in told.items() if len(a) == 1 and a.total() >= REPEATED}
    return [memory.get(q.text, answers[n]) for q, n in zip(asked, likeliest, strict=True)]


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    words = text.removesuffix("?").split()
    return (tuple(words[n : n + size]) for size in range(1, LONGEST + 1) for n in range(len(words) - size + 1))


def _rows(questions: Sequence[AnsweredQuestion], place: dict[tuple[str, ...], int]) -> Int64[Tensor, "question run"]:
    """The runs of each question that are known by their places, and 0 for the rest of a row."""
    rows = [[place.get(run, 0) for run in _runs(q.text)] for q in questions]
    longest = max(map(len, rows), default=0)
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])
