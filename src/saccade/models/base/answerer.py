"""Answerers: a question about a picture gets one of the answers that the model knows, and shows what it looked at."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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


class Answerer(Model):
    """Question q is about picture q of a batch; `answers` are what its logits stand for."""

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
        encoded = [self.vocabulary.encode(text) for text in texts]
        return TextBatch.of([ids[1:-1] for ids, _ in encoded], [words[1:-1] for _, words in encoded])

    @abstractmethod
    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered: ...

    def forward(self, images: RegionBatch | PictureBatch, questions: TextBatch) -> Answered:
        return self.answer(self.extract(images), questions)
