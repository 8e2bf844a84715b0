"""Answerers: a question about a picture gets one of the answers that the model knows, and shows what it looked at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from saccade.batch import Answered, PictureBatch, RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import Model


@dataclass(frozen=True)
class AnswererConfig:
    """What every answerer has: the answers it may give, and the widths of what it reads."""

    answers: tuple[str, ...] = ()  # those of the training questions, most frequent first
    region_dim: int = 2048
    word_dim: int = 300
    standardise: bool = False  # region features to mean 0 and spread 1, channel by channel; not in the papers
    output: Literal["sigmoid", "softmax"] = "sigmoid"  # softmax: where one answer alone is right; not in the papers


class Answerer(Model):
    """Question q is about picture q of a batch; `answers` are what its logits stand for."""

    _read_answers: TextBatch | None = None

    def __init__(self, config: AnswererConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        if not config.answers:
            raise SaccadeError("an answerer needs answers to choose from: model.answers is empty")

    @property
    def answers(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.config.answers
        return found

    def read(self, texts: Sequence[str]) -> TextBatch:
        """Questions as their words alone, without <start> and <end>."""
        return self.vocabulary.batch(texts, ends=False)

    def read_questions(self, questions: Sequence[str]) -> TextBatch:
        """`read`, all of them written alike: with a question mark if the model knows it, else without."""
        mark = "?" if "?" in self.vocabulary else ""
        return self.read([question.rstrip(" ?") + mark for question in questions])

    def read_answers(self, device: torch.device) -> TextBatch:
        """The answers' words, for models that compare with them; read once."""
        if self._read_answers is None or self._read_answers.mask.device != device:
            self._read_answers = self.read(self.answers).to(device)
        return self._read_answers

    def probabilities(self, logits: Float[Tensor, "question answer"]) -> Float[Tensor, "question answer"]:
        """How right each answer is: each by itself, or all together one."""
        return logits.sigmoid() if self.config.output == "sigmoid" else logits.softmax(dim=1)

    def loss(
        self, logits: Float[Tensor, "question answer"], target: Float[Tensor, "question answer"]
    ) -> Float[Tensor, ""]:
        """Cross-entropy against soft scores, summed over answers, averaged over questions."""
        if self.config.output == "sigmoid":
            summed = functional.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        else:
            share = target / target.sum(dim=1, keepdim=True).clamp(min=1e-6)  # without a known answer: nothing
            summed = -(share * logits.log_softmax(dim=1)).sum()
        return summed / max(len(target), 1)

    @abstractmethod
    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered: ...

    def forward(self, images: RegionBatch | PictureBatch, questions: TextBatch) -> Answered:
        return self.answer(self.extract(images), questions)
