"""Moment finders: when in a video happens what a sentence says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from saccade.batch import FrameBatch, RankedMoments, RegionBatch, TextBatch
from saccade.models.base.model import Model

Stage = Literal[1, 2, 3]  # of training: first without the head that rates, then that head alone, then all
Losses = dict[str, Float[Tensor, ""]]


@dataclass(frozen=True)
class MomentFinderConfig:
    """What every moment finder has: the width of the frames' features and of the words."""

    region_dim: int = 4096  # of a frame, or of a clip of frames
    word_dim: int = 300


class MomentFinder(Model):
    """Text t is about video t of a batch, and tells of one moment of it."""

    intended_use = "To find when in a video something happens, said in a sentence."

    def read(self, texts: Sequence[str]) -> TextBatch:
        return self.vocabulary.batch(texts, ends=False)

    @abstractmethod
    def propose(self, videos: RegionBatch, texts: TextBatch) -> RankedMoments:
        """RankedMoments as shares of the videos, the best first."""

    @abstractmethod
    def losses(self, videos: RegionBatch, texts: TextBatch, spans: Float[Tensor, "text 2"], stage: Stage = 3) -> Losses:
        """By name what a stage of training minimises the sum of; `spans` are shares of the videos."""

    def find(self, videos: RegionBatch, texts: TextBatch) -> RankedMoments:
        """RankedMoments in seconds, the best first; as shares of a video whose length is not known."""
        found = self.propose(videos, texts)
        seconds = videos.seconds if isinstance(videos, FrameBatch) else None
        return found if seconds is None else found.scaled(seconds)

    def forward(self, videos: RegionBatch, texts: TextBatch) -> RankedMoments:
        return self.find(videos, texts)
