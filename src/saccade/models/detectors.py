"""The detectors of `saccade.vision.detectors` as models, trained, saved and loaded like every other.

The networks, their papers and their losses are there; here are their labels, batches and optimiser groups.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from saccade.core.errors import SaccadeError
from saccade.core.threads import openers
from saccade.models.base.model import Model, register
from saccade.vision.backbones.base import load_backbone
from saccade.vision.backbones.tuned import without_base
from saccade.vision.boxes import UNKNOWN
from saccade.vision.detectors.bottomup import (
    BottomUpConfig,
    BottomUpExtractor,
    BottomUpNetwork,
    BoxedPictures,
    bottomup_loss,
)
from saccade.vision.detectors.world import (
    PICTURE_ATTRIBUTES,
    REGION_ATTRIBUTES,
    ScenePictures,
    WorldExtractor,
    WorldExtractorConfig,
    WorldNetwork,
    world_loss,
)
from saccade.vision.extractors import RegionExtractor
from saccade.vision.pictures import Picture, as_array, name_of
from saccade.world.catalogue import BACKGROUNDS, COLOURS, KINDS, LIGHTINGS, MATERIALS, SIZES

MAX_ATTRIBUTES = 6  # kept of one thing
MAX_NAMES = 6  # that people gave one thing
MAX_THINGS = 40  # of a picture: the largest
MAX_STATED = 64  # among them
POSES = ("still", "running", "holding", "pushing", "sitting")
FACINGS = ("left", "right")


class NamedBoxes(Protocol):
    """A picture with named boxes: a `saccade.data.BoxedPicture`, or one of the world."""

    @property
    def path(self) -> Picture: ...

    @property
    def boxes(self) -> np.ndarray: ...  # [thing, 4] in 0..1

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def attributes(self) -> Sequence[Sequence[str]]: ...

    @property
    def said(self) -> Sequence[Sequence[str]]: ...  # all names that people gave each thing; empty: `names` are all

    @property
    def relations(self) -> Sequence[tuple[int, str, int]]: ...  # subject, predicate, object


class Labels(NamedTuple):
    """What a detector can say."""

    classes: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    predicates: tuple[str, ...] = ()


class Detector(Model):
    """A network that finds and names regions. It reads no text and has no vocabulary: its labels are settings."""

    intended_use = "To find and name the regions of pictures that other models read."
    reads_text = False
    selection: ClassVar[str]  # the figure that chooses the best model
    Network: ClassVar[Any]  # a FoldableNetwork

    def __init__(self, config: Any, vocabulary: None = None, extractor: None = None) -> None:
        super().__init__(config)
        self.network = self.Network(config)

    @classmethod
    @abstractmethod
    def with_labels(cls, config: Any, labels: Labels) -> Any:
        """The settings with the labels that the training data give."""

    @abstractmethod
    def tensors(self, pictures: Sequence[Any]) -> BoxedPictures | ScenePictures:
        """Pictures, decoded to bytes, and their truth as the losses take them."""

    @abstractmethod
    def losses(self, batch: Any) -> dict[str, Float[Tensor, ""]]:
        """The parts of the loss; pictures are augmented here."""

    @abstractmethod
    def as_extractor(self) -> RegionExtractor:
        """The network as an extractor, folded and frozen in place."""

    def own_weights(self) -> tuple[dict[str, Tensor], dict[str, str] | None]:
        return without_base(self.state_dict(), self.network.backbone.name)

    def fit_to(self, weights: Mapping[str, Tensor]) -> None:
        """Weights whose normalisations were folded need a network of that form."""
        if weights.keys() != self.state_dict().keys():
            self.network.fold_normalisation()


@register(
    "bottomup",
    task="detection",
    title="Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering (the detector)",
    venue="Anderson et al., CVPR 2018",
)
class BottomUp(Detector):
    Config = BottomUpConfig
    Network = BottomUpNetwork
    selection = "map"

    @classmethod
    def with_labels(cls, config: BottomUpConfig, labels: Labels) -> BottomUpConfig:
        return replace(config, **labels._asdict())

    def begin(self) -> None:
        """Start from the backbone's own trained weights."""
        self.network.backbone = load_backbone(self.config.backbone)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The backbone learns more slowly, its first parts more slowly than its last, or not at all."""
        backbone, scale = self.network.backbone, self.config.backbone_lr_scale
        for part in backbone.parts[: self.config.backbone_freeze] if scale else (backbone,):
            part.requires_grad_(False)
        inside = {id(p) for p in backbone.parameters()}
        parts: list[tuple[list[nn.Parameter], float]] = [([p for p in self.parameters() if id(p) not in inside], 1.0)]
        for depth, part in enumerate(reversed(backbone.parts)):
            parts.append((list(part.parameters()), scale * self.backbone_layer_decay**depth))
        return [
            {**group, "betas": (0.9, 0.99)} for weights, factor in parts for group in _decay_matrices(weights, factor)
        ]

    def tensors(self, pictures: Sequence[NamedBoxes]) -> BoxedPictures:
        """At most `MAX_THINGS` boxes, the largest; names and attributes that are no labels are unknown.

        A predicate that is no label counts as the longest part of its end that is one: "sprinting on" as "on".
        """
        c = self.config
        classes, attributes, predicates = (
            {name: i for i, name in enumerate(v, 1)} for v in (c.classes, c.attributes, c.predicates)
        )
        pixels = _decode(pictures, self.config.size)
        boxes, real = _padded_boxes(pictures)
        labels = np.full(real.shape, UNKNOWN, dtype=np.int64)
        described = np.full((*real.shape, MAX_ATTRIBUTES), UNKNOWN, dtype=np.int64)
        said = np.full((*real.shape, MAX_NAMES), UNKNOWN, dtype=np.int64)
        related = np.full((len(pictures), MAX_STATED, 3), UNKNOWN, dtype=np.int64)
        for i, picture in enumerate(pictures):
            place = {k: j for j, k in enumerate(_largest(picture.boxes))}
            for k, j in place.items():
                labels[i, j] = classes.get(picture.names[k], UNKNOWN)
                names = picture.said[k] if picture.said else picture.names[k : k + 1]
                for table, known, words in ((said, classes, names), (described, attributes, picture.attributes[k])):
                    numbers = [known[word] for word in words if word in known][: table.shape[2]]
                    table[i, j, : len(numbers)] = numbers
            triplets = [
                (place[s], place[o], _longest_end(predicate, predicates))
                for s, predicate, o in picture.relations
                if s in place and o in place and real[i, [place[s], place[o]]].all()
            ]
            related[i, : len(triplets)] = np.reshape(triplets[:MAX_STATED], (-1, 3))
        arrays = (pixels, boxes, real, labels, described, said, related)
        return BoxedPictures(*(torch.from_numpy(array) for array in arrays))

    def losses(self, batch: BoxedPictures) -> dict[str, Float[Tensor, ""]]:
        return bottomup_loss(self.network, batch)

    def as_extractor(self) -> BottomUpExtractor:
        return BottomUpExtractor(self.network, "bottomup (unsaved)")


@register(
    "world_extractor",
    task="detection",
    title="The detector of the built-in world",
    venue="after CenterNet, Zhou et al., 2019",
)
class WorldDetector(Detector):
    Config = WorldExtractorConfig
    Network = WorldNetwork
    selection = "found_and_named"

    @classmethod
    def with_labels(cls, config: WorldExtractorConfig, labels: Labels) -> WorldExtractorConfig:
        """All that the world can draw, in its own order."""
        return replace(
            config,
            kinds=tuple(KINDS),
            colours=tuple(COLOURS),
            sizes=tuple(SIZES),
            materials=tuple(MATERIALS),
            poses=POSES,
            facings=FACINGS,
            backgrounds=tuple(BACKGROUNDS),
            lightings=tuple(LIGHTINGS),
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        return _decay_matrices(self.parameters(), 1.0)

    def tensors(self, pictures: Sequence[Any]) -> ScenePictures:
        """Raises: SaccadeError if the pictures are not the world's, which alone have poses, sizes and lights."""
        if not all(hasattr(p, "labels") and hasattr(p, "places") for p in pictures):
            raise SaccadeError(
                "world_extractor learns from the world alone (data=world); bottomup learns from any boxes"
            )
        number = {name: {label: i for i, label in enumerate(labels)} for name, labels in self.config.labels.items()}
        pixels = _decode(pictures, self.config.picture_size)
        boxes, real = _padded_boxes(pictures)
        things = np.full((*real.shape, len(REGION_ATTRIBUTES)), UNKNOWN, dtype=np.int64)
        places = np.full((len(pictures), len(PICTURE_ATTRIBUTES)), UNKNOWN, dtype=np.int64)
        for i, picture in enumerate(pictures):
            for j, k in enumerate(_largest(picture.boxes)):
                things[i, j] = [number[a].get(picture.labels[k].get(a), UNKNOWN) for a in REGION_ATTRIBUTES]
            places[i] = [number[a].get(picture.places.get(a), UNKNOWN) for a in PICTURE_ATTRIBUTES]
        return ScenePictures(*(torch.from_numpy(array) for array in (pixels, boxes, real, things, places)))

    def losses(self, batch: ScenePictures) -> dict[str, Float[Tensor, ""]]:
        return world_loss(self.network, batch)

    def as_extractor(self) -> WorldExtractor:
        return WorldExtractor(self.network, "world (unsaved)")


def _decay_matrices(weights: Any, factor: float) -> list[dict[str, Any]]:
    """Groups of an optimiser: biases and normalisations do not decay."""
    every: list[nn.Parameter] = list(weights)
    return [
        {"params": [p for p in every if p.ndim > 1], "factor": factor},
        {"params": [p for p in every if p.ndim <= 1], "factor": factor, "weight_decay": 0.0},
    ]


def _longest_end(predicate: str, known: Mapping[str, int]) -> int:
    """The number of the predicate, or of the longest part of its end that has one."""
    words = predicate.split()
    ends = (" ".join(words[n:]) for n in range(len(words)))
    return next((known[end] for end in ends if end in known), UNKNOWN)


def _decode(pictures: Sequence[NamedBoxes], size: int) -> UInt8[np.ndarray, "image size size 3"]:
    pixels = np.zeros((len(pictures), size, size, 3), dtype=np.uint8)

    def decode(i: int) -> None:
        pixels[i] = as_array(pictures[i].path, name_of(pictures[i].path, i), size)

    with ThreadPoolExecutor(openers()) as pool:
        list(pool.map(decode, range(len(pictures))))
    return pixels


def _largest(boxes: np.ndarray) -> list[int]:
    """Places of the largest boxes of a picture, largest first."""
    sides = boxes[:, 2:] - boxes[:, :2] if len(boxes) else np.zeros((0, 2))
    return [int(k) for k in np.argsort(-sides.prod(axis=1), kind="stable")[:MAX_THINGS]]


def _padded_boxes(
    pictures: Sequence[NamedBoxes],
) -> tuple[Float[np.ndarray, "image thing 4"], Bool[np.ndarray, "image thing"]]:
    """Room for one at least; a box without area is not real."""
    things = min(max((len(p.boxes) for p in pictures), default=0), MAX_THINGS) or 1
    boxes, real = np.zeros((len(pictures), things, 4), dtype=np.float32), np.zeros((len(pictures), things), dtype=bool)
    for i, picture in enumerate(pictures):
        for j, k in enumerate(_largest(picture.boxes)):
            boxes[i, j] = picture.boxes[k]
            real[i, j] = bool((boxes[i, j, 2:] > boxes[i, j, :2]).all())
    return boxes, real
