"""What the words of a question alone say of its answer: a question-only model, to hold the world's questions to chance.

Logistic regression on all runs of one to three words, for each kind of question, and before it a memory of whole texts
that had one answer only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from saccade.world.dice import Dice
from saccade.world.questions import Question, ask
from saccade.world.sample import sample_scene
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


def drawn_questions(config: WorldConfig, split: str, scenes: int) -> list[Question]:
    """Questions on scenes of a split that are drawn for this, and not painted."""
    wish = config.wish(split)
    return [
        question
        for n in range(scenes)
        for question in ask(sample_scene(Dice(config.seed, split, n), f"{split}-{n:06d}", wish), wish)
    ]


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
