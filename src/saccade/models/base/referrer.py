"""Referrers: which of several boxes an expression or a dialog means."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from saccade.batch import END, CandidateBatch, Referred, RegionBatch, StepBatch
from saccade.data.records import Spoken
from saccade.models.base.model import Model


@dataclass(frozen=True)
class ReferrerConfig:
    """What every referrer has: the categories that boxes may be of, and how texts are read."""

    region_dim: int = 512  # of the picture's regions and of the candidates
    word_dim: int = 512
    categories: tuple[str, ...] = ()  # those of the training boxes
    step: Literal["auto", "words", "turns", "text"] = "auto"  # auto: a word of an expression, a turn of a dialog
    end: int = 1  # last steps that read <end>: after one the last attention has seen all words; the papers do not say
    standardise: bool = False  # features to mean 0 and spread 1, channel by channel; not in the papers


class Referrer(Model):
    """Text t is about picture t of a batch, and means one of the candidates t."""

    intended_use = "To find what an expression or a dialog refers to in a picture."

    def read_spoken(self, texts: Sequence[Spoken]) -> StepBatch:
        """Expressions and dialogs as the steps in which this model reads them."""
        ids, shown = [], []
        for text in texts:
            turns = (text,) if isinstance(text, str) else text
            kind = self.config.step if self.config.step != "auto" else "words" if isinstance(text, str) else "turns"
            parts = [" ".join(turns)] if kind != "turns" else turns
            read = self.vocabulary.batch(parts, ends=False)
            steps = [row[real].tolist() for row, real in zip(read.tokens, read.mask, strict=True)]
            said: list[str] = [*parts]
            if kind == "words":
                steps, said = [[word] for word in steps[0]], list(read.words[0])
            ids.append([*steps, *([END] for _ in range(self.config.end))])
            shown.append([*said, *("." for _ in range(self.config.end))])
        return StepBatch.of(ids, shown)

    def category_ids(self, names: Sequence[str]) -> list[int]:
        """By number from 1; 0 for one that the model does not know."""
        place = {name: n for n, name in enumerate(self.config.categories, start=1)}
        return [place.get(name, 0) for name in names]

    def loss(self, found: Referred, target: Int[Tensor, " text"]) -> Float[Tensor, ""]:
        """Cross-entropy of the candidate that is meant."""
        return functional.cross_entropy(found.logits, target)

    @abstractmethod
    def refer(self, images: RegionBatch, candidates: CandidateBatch, texts: StepBatch) -> Referred: ...

    def forward(self, images: RegionBatch, candidates: CandidateBatch, texts: StepBatch) -> Referred:
        return self.refer(images, candidates, texts)
