"""Concept learners: questions as programs, executed on what the model says of a picture's regions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import Program, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import Model
from saccade.nn.encode import at_least_float32, full_precision
from saccade.nn.programs import Execution, Lexicon, execute

METACONCEPTS = ("synonym", "instance_of", "hypernym", "same_kind", "meronym")  # in the official order
NO_VALUE = -100.0  # the logit of a concept as a value of an attribute that it does not belong to


@dataclass(frozen=True)
class ConceptConfig:
    """The words a model learns. They come from the data; a concept may belong to no attribute ("animal")."""

    concepts: tuple[str, ...] = ()
    attributes: tuple[tuple[str, ...], ...] = ()  # each: its name, then the concepts that are its values
    relations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for attribute, *values in self.attributes:
            if missing := [value for value in values if value not in self.concepts]:
                raise SaccadeError(f'"{missing[0]}" is a value of {attribute} and no concept')

    @property
    def lexicon(self) -> Lexicon:
        return Lexicon(self.concepts, tuple(name for name, *_ in self.attributes), self.relations)


PAIR_GEOMETRY = 16  # numbers of a pair beside both vectors
BOX_SCALE = 8.0  # differences of boxes are a tenth or so: a layer learns from them as from vectors of unit spread


class PairLinear(nn.Linear):
    """A linear layer of all pairs of regions i, j: their vectors, their boxes, and how far the boxes are apart.

    The last is the difference of the boxes and its size, by which a linear layer can tell near from far. What depends
    on one region alone is computed once for it.
    """

    def __init__(self, dim: int, outputs: int) -> None:
        super().__init__(2 * dim + PAIR_GEOMETRY, outputs)

    def forward(  # type: ignore[override]
        self, vectors: Float[Tensor, "image region dim"], boxes: Float[Tensor, "image region 4"]
    ) -> Float[Tensor, "image region region outputs"]:
        boxes = BOX_SCALE * boxes.to(vectors.dtype)
        dim = vectors.shape[2]
        first, second, first_box, second_box, moved, apart = torch.split(self.weight, [dim, dim, 4, 4, 4, 4], dim=1)
        of_first = F.linear(vectors, first, self.bias) + F.linear(boxes, first_box - moved)
        of_second = F.linear(vectors, second) + F.linear(boxes, second_box + moved)
        distance = (boxes[:, None] - boxes[:, :, None]).abs()
        return of_first[:, :, None] + of_second[:, None] + F.linear(distance, apart)


class ConceptLearner(Model):
    """A model says what it sees; the executor asks it (`saccade.nn.programs`)."""

    config: Any
    scene_logit: float = 10.0

    def __init__(self, config: Any, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.lexicon: Lexicon = config.lexicon
        members = torch.zeros(len(config.attributes), len(config.concepts), dtype=torch.bool)
        for row, (_, *values) in enumerate(config.attributes):
            members[row, [self.lexicon.place("concepts", value) for value in values]] = True
        self.members: Bool[Tensor, "attribute concept"]
        self.register_buffer("members", members, persistent=False)

    @abstractmethod
    def encode_scene(self, regions: RegionBatch) -> ConceptScene:
        """The pictures, encoded, ready to be asked."""

    def metaconcepts(
        self, first: Int[Tensor, "*pair"], second: Int[Tensor, "*pair"]
    ) -> Float[Tensor, "*pair metaconcept"]:
        """Logits of every metaconcept between pairs of concepts, in the order of `METACONCEPTS`.

        Raises: SaccadeError if the model has none.
        """
        raise SaccadeError(f"{self.name} learns no metaconcepts; vcml does")

    def probabilities(self) -> Float[Tensor, "concept given"]:
        """Pr(concept | given) for all pairs of concepts. Raises: SaccadeError if the model has none."""
        raise SaccadeError(f"{self.name} has no probabilities of concepts given others; vcml has")

    def execute(
        self, regions: RegionBatch | ConceptScene, programs: Sequence[Program], images: Sequence[int] | None = None
    ) -> Execution:
        """Answers to programs, the n-th about the n-th picture unless `images` says otherwise.

        Raises: SaccadeError if a program has unknown steps or words.
        """
        scene = self.encode_scene(regions) if isinstance(regions, RegionBatch) else regions
        with full_precision(scene.objects):
            return execute(scene, self.lexicon, programs, range(len(programs)) if images is None else images)

    def metaconcept(self, kind: str, first: str, second: str) -> Float[Tensor, ""]:
        """The logit of "is FIRST a KIND of SECOND". Raises: SaccadeError if a word is not known."""
        if kind not in METACONCEPTS:
            raise SaccadeError(f'there is no metaconcept "{kind}" (there are: {", ".join(METACONCEPTS)})')
        places = [self.concept_places([word]) for word in (first, second)]
        return self.metaconcepts(*places)[0, METACONCEPTS.index(kind)]

    def concept_places(self, words: Sequence[str]) -> Int[Tensor, " word"]:
        return torch.tensor([self.lexicon.place("concepts", word) for word in words], device=self.members.device)

    def own_losses(self, scene: ConceptScene | None = None) -> dict[str, Float[Tensor, ""]]:
        """What a model adds to the loss of the answers."""
        return {}


class ConceptScene:
    """Pictures that a model has encoded; `saccade.nn.programs.Scene`."""

    def __init__(self, model: ConceptLearner, objects: Float[Tensor, "image region dim"], regions: RegionBatch) -> None:
        whole = (regions.boxes == regions.boxes.new_tensor([0, 0, 1, 1])).all(
            dim=2
        )  # the picture is none of its things
        self.objects, self.regions, self.mask = at_least_float32(objects), regions, regions.mask & ~whole
        self.members = model.members
        self.scene_logit, self.training = model.scene_logit, model.training

    def exist(self, largest: Float[Tensor, " row"]) -> Float[Tensor, " row"]:
        return largest

    @abstractmethod
    def concepts(self, image: Int[Tensor, " row"], concept: Int[Tensor, " row"]) -> Float[Tensor, "row region"]: ...

    @abstractmethod
    def relations(
        self, image: Int[Tensor, " row"], relation: Int[Tensor, " row"]
    ) -> Float[Tensor, "row region region"]: ...

    @abstractmethod
    def same(
        self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]
    ) -> Float[Tensor, "row region region"]: ...

    @abstractmethod
    def query(
        self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]
    ) -> Float[Tensor, "row region concept"]: ...
