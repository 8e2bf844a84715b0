"""Grounders: which region of a picture a phrase of a sentence means."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from saccade.batch import RegionBatch, TextBatch
from saccade.models.base.model import Model


class Grounder(Model):
    """Sentence p goes with picture p of a batch; its regions are the proposals."""

    intended_use = "To find what the phrases of a sentence mean in a picture."

    @property
    def grounds(self) -> bool:
        """Whether it has learned to; a model of several tasks may have been trained without this one."""
        return True

    def read(self, texts: Sequence[str]) -> TextBatch:
        """Sentences as their words alone, without <start> and <end>."""
        return self.vocabulary.batch(texts, ends=False)

    @abstractmethod
    def ground(
        self, images: RegionBatch, texts: TextBatch, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase region"]:
        """The logit of every region being what a phrase of its sentence means; `phrases` has 1 at the words of each."""
