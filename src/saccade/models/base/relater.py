"""Relation detectors: pairs of regions in, the probability of every (subject, predicate, object) out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Batch, RegionBatch
from saccade.core.errors import NEAR_ENGLISH, SaccadeError, did_you_mean
from saccade.language import Vocabulary
from saccade.models.base.model import Model

Transfer = Literal["unseen", "all", "none"]  # which triplets a model scores by way of others that it knows


@dataclass(frozen=True)
class RelaterConfig:
    """The words of triplets. They come from the training data; the first of each stands for nothing."""

    classes: tuple[str, ...] = ("background",)  # what subjects and objects are
    predicates: tuple[str, ...] = ("no interaction",)
    triplets: tuple[tuple[int, int, int], ...] = ()  # those of the training split: places of subject, predicate, object
    occurrences: tuple[float, ...] = ()  # how often each was seen

    def __post_init__(self) -> None:
        if len(self.triplets) != len(self.occurrences):
            raise SaccadeError(f"{len(self.triplets)} triplets need as many counts, not {len(self.occurrences)}")
        sizes = (len(self.classes), len(self.predicates), len(self.classes))
        for triplet in self.triplets:
            if not all(0 <= place < size for place, size in zip(triplet, sizes, strict=True)):
                raise SaccadeError(f"the triplet {triplet} names a class or predicate that is not there")


@dataclass(frozen=True)
class RegionPairs(Batch):
    """Ordered pairs of regions, a subject and an object each."""

    subjects: Float[Tensor, "*pair dim"]
    objects: Float[Tensor, "*pair dim"]
    subject_boxes: Float[Tensor, "*pair 4"]
    object_boxes: Float[Tensor, "*pair 4"]

    @staticmethod
    def of(
        regions: RegionBatch, image: Int[Tensor, " pair"], subject: Int[Tensor, " pair"], object: Int[Tensor, " pair"]
    ) -> RegionPairs:
        """Region `subject[n]` of picture `image[n]` with region `object[n]` of it."""
        features, boxes = regions.features, regions.boxes
        return RegionPairs(
            features[image, subject], features[image, object], boxes[image, subject], boxes[image, object]
        )


@dataclass(frozen=True)
class PairLabels(Batch):
    """What is true of pairs: 1 where it is, 0 elsewhere; triplets in the order of the model's settings."""

    subjects: Float[Tensor, "pair class"]
    predicates: Float[Tensor, "pair predicate"]
    objects: Float[Tensor, "pair class"]
    triplets: Float[Tensor, "pair triplet"]


@dataclass(frozen=True)
class TripletCode(Batch):
    """Triplets that pairs are to be scored for."""

    triplets: Int[Tensor, "target 3"]
    phrases: Float[Tensor, "target dim"]  # of all three words together
    scale: Float[Tensor, " target"]  # of scores by these


@dataclass(frozen=True)
class SourceTriplet:
    """A known triplet that says something about another one."""

    triplet: tuple[str, str, str]
    similarity: float
    weight: float


class Relater(Model):
    """Triplets are places in `config.classes` and `config.predicates`; a model scores any of them, seen or not."""

    intended_use = "To find pictures, and pairs of boxes in them, where something stands in a relation to something."
    config: Any

    def __init__(self, config: Any, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        if len(config.classes) < 2 or len(config.predicates) < 2:
            raise SaccadeError("a relation detector needs model.classes and model.predicates: both are empty")
        for name in (*config.classes, *config.predicates):
            if missing := [word for word in name.split() or [name] if word not in vocabulary]:
                raise SaccadeError(f'the vocabulary lacks "{missing[0]}", a word of "{name}"')

    @abstractmethod
    def encode_triplets(self, triplets: Int[Tensor, "target 3"], transfer: Transfer = "unseen") -> TripletCode:
        """Once, for any number of pictures."""

    @abstractmethod
    def score(self, pairs: RegionPairs, triplets: TripletCode) -> Float[Tensor, "pair target"]:
        """How likely each triplet is of each pair."""

    @abstractmethod
    def losses(
        self, pairs: RegionPairs, labels: PairLabels, queries: Int[Tensor, " query"] | None = None
    ) -> dict[str, Float[Tensor, ""]]:
        """Parts of the loss; with `queries`, places of the batch's true triplets, those of the second stage."""

    @abstractmethod
    def sources(self, triplet: tuple[int, int, int]) -> list[SourceTriplet]:
        """By which known triplets an unseen one is scored, the weightiest first."""

    @cached_property
    def counts(self) -> dict[tuple[int, int, int], float]:
        """How often each triplet was seen in training."""
        return dict(zip(self.config.triplets, self.config.occurrences, strict=True))

    def seen(self, triplets: Int[Tensor, "target 3"]) -> Tensor:
        known = [self.counts.get(tuple(row), 0) > 0 for row in triplets.tolist()]
        return torch.tensor(known, dtype=torch.bool, device=triplets.device)

    def named(self, triplet: Sequence[int]) -> tuple[str, str, str]:
        subject, predicate, object = triplet
        classes: tuple[str, ...] = self.config.classes
        return classes[subject], self.config.predicates[predicate], classes[object]

    def places(self, subject: str, predicate: str, object: str) -> tuple[int, int, int]:
        """Raises: SaccadeError if the model does not know one of the three."""
        classes, predicates = self.config.classes[1:], self.config.predicates[1:]
        asked = ((subject, classes, "thing"), (predicate, predicates, "relation"), (object, classes, "thing"))
        for word, known, what in asked:
            if word not in known:  # there may be hundreds: they are not listed
                raise SaccadeError(f'the model knows no {what} "{word}"{did_you_mean(word, known, NEAR_ENGLISH)}')
        return 1 + classes.index(subject), 1 + predicates.index(predicate), 1 + classes.index(object)
