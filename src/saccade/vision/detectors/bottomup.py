"""Bottom-Up attention (Anderson, He, Buehler, Teney, Johnson, Gould, Zhang; CVPR 2018): regions that a detector finds.

    maps → proposals (rpn.py) → region vectors → classes and finer boxes → the selection rule (nms.py)
    p(class)     = softmax(W v)                                          v: the region's vector, background included
    p(attribute) = softmax(W₂ relu(W₁ [v; e(class)]))                    e: an embedding of the class

One more head says how two regions stand to each other (relations.py).

The original is Faster R-CNN on ResNet-101. Here the maps of any backbone from stride 8 on are joined (pyramid.py), and
a region's vector has two halves: the joined map at 7 × 7 points inside the box, with the box's shape, which those
points do not show; and the mean of the backbone's last map under it, which knows more of kinds than of places (with
`under=all` the means of all its maps).

`bottomup` has the weights that come with the package, `bottomup:FOLDER` those that `saccade train bottomup` wrote, and
`@36` at the end asks for that many regions instead of the paper's 10 to 100 (`bottomup@36`, `bottomup:FOLDER@20-50`).
The picture itself is one more region, the last: for words that belong to no thing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import Batch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.core.weights import Form
from saccade.vision.augment import augment_with_boxes
from saccade.vision.backbones.base import Backbone, FoldableNetwork, check_backbone, load_backbone
from saccade.vision.backbones.pyramid import FeaturePyramid, norm_groups
from saccade.vision.boxes import GEOMETRY_DIM, UNKNOWN, WHOLE, clip, geometry, iou, jitter, overlaps, pick
from saccade.vision.detectors.relations import AttributeHead, RelationHead, attribute_loss, relation_loss
from saccade.vision.detectors.rpn import (
    TRAINING_NMS_ROUNDS,
    RegionProposalNetwork,
    decode,
    draw_both,
    encode,
    mean_surprise,
    mean_where,
    propose,
    rpn_loss,
)
from saccade.vision.extractors import (
    SAME_THING,
    PictureRelation,
    RegionDescription,
    RegionExtractor,
    for_inference,
    padded_boxes,
    padded_regions,
    read_detector_config,
    read_detector_weights,
    split_count,
    upload,
    with_whole_picture,
    write_detector,
)
from saccade.vision.nms import class_confidence, nms, select
from saccade.vision.roi import mean_under, points_inside

SHIPPED = Path(__file__).parents[1] / "weights" / "bottomup"
MIDDLE_SCALE, SIDE_SCALE = 0.1, 0.2  # a refinement is small: the head's outputs are about 1 for these
MIN_CLASS_SCORE = 0.01  # lower ones neither suppress nor count; boxes without a higher one stay as they were proposed
POSITIVE_IOU = 0.5  # a region that overlaps a thing by this much is that thing, in training, and background otherwise
DRAWN_REGIONS, DRAWN_POSITIVES = 96, 32  # a picture in training, and how many of them may be things
BOX_JITTER = 0.15  # of a side, of true boxes that training adds to the proposals
CROP, COLOUR = 0.6, 0.25  # how far pictures vary in training
MAX_RELATIONS = 64  # of a picture's graph, the surest
ATTRIBUTE_WEIGHT = 0.5


@dataclass(frozen=True)
class BottomUpConfig:
    """Selection, overlaps and the attribute head are the paper's; the sizes fit a small backbone."""

    backbone: str = "efficientnet-lite0"
    size: int = 320  # pictures are stretched to this square
    backbone_lr_scale: float = 0.1  # how fast the backbone learns, beside the new layers; 0 keeps it as it is
    backbone_freeze: int = 0  # so many of its first parts stay as they are (DINOv2-S: patches, 12 blocks, last norm)
    stride: int = 8  # the backbone's maps from this stride on are joined into one; if all are coarser, it is made finer
    map_dim: int = 256
    scales: tuple[float, ...] = (0.06, 0.12, 0.24, 0.45, 0.8)  # √area of the anchors, in sides of the picture
    ratios: tuple[float, ...] = (0.4, 0.9, 2.0)  # width/height
    rpn_dim: int = 128
    candidates: int = 2000  # anchors that go into the suppression of proposals
    candidates_by_scale: bool = True  # equally many of each scale
    proposals: int = 300  # boxes that come out of it, at most
    proposal_overlap: float = 0.7
    roi_size: int = 7
    roi_dim: int = 96
    dim: int = 1024  # of a region's vector
    under: Literal["last", "all"] = "last"  # which of the backbone's maps a region's vector has the means of
    name_weight: float = 0.0  # of a second loss of the names, at the true boxes and of their commonest name alone
    dropout: float = 0.2  # of the vectors, for the heads alone and while training
    class_dim: int = 256  # of the class's embedding in the attribute head
    attribute_hidden: int = 512
    select_by: Literal["class", "thing"] = "class"  # the paper's rule, or how sure it is that anything is there
    class_overlap: float = 0.3  # above which each class suppresses, in the paper's rule
    thing_overlap: float = 0.5  # above which a thing suppresses, whatever it is called, in the other
    confidence: float = 0.2  # a region's, to be kept
    least: int = 10  # regions a picture, and
    most: int = 100  # at most
    whole: bool = True  # the picture itself is the last region
    attribute_confidence: float = 0.3  # an attribute's, to be named
    relation_hidden: int = 512
    relation_confidence: float = 0.3  # a predicate's, to be named
    classes: tuple[str, ...] = ()  # the background, number 0 of the scores, is not among them
    attributes: tuple[str, ...] = ()  # "none", number 0, neither
    predicates: tuple[str, ...] = ()  # nor here; without any there is no relation head

    def __post_init__(self) -> None:
        check_backbone(self.backbone)
        if self.backbone_lr_scale < 0:
            raise SaccadeError(f"backbone_lr_scale must be zero or more, not {self.backbone_lr_scale}")
        if self.backbone_freeze < 0:
            raise SaccadeError(
                f"backbone_freeze counts parts of a backbone: it must be zero or more, not {self.backbone_freeze}"
            )

    @property
    def anchor_kinds(self) -> tuple[int, int]:
        """Scales and ratios, as `propose` wants them."""
        return (len(self.scales), len(self.ratios)) if self.candidates_by_scale else (1, 1)


@dataclass(frozen=True)
class BoxedPictures(Batch):
    """Pictures with their true boxes, classes and attributes."""

    pixels: UInt8[Tensor, "image height width 3"]
    boxes: Float[Tensor, "image thing 4"]  # padded; room for one at least
    real: Bool[Tensor, "image thing"]
    labels: Int[Tensor, "image thing"]  # 1.. of the classes (0 is the background), or UNKNOWN
    attributes: Int[Tensor, "image thing some"]  # 1.. of the attributes (0 is "none"), or UNKNOWN
    said: Int[Tensor, "image thing name"] | None = None  # every name that people gave, as labels; None: only `labels`
    relations: Int[Tensor, "image relation 3"] | None = None  # places of subject and object, predicate (1..) or UNKNOWN


class DetectorMaps(NamedTuple):
    """What regions are read from."""

    joined: Float[Tensor, "image dim row column"]
    under: tuple[Float[Tensor, "image channel row2 column2"], ...]  # the backbone's last, or all of them


class HeadOutput(NamedTuple):
    """Of each region."""

    classes: Float[Tensor, "*region class"]  # logits, the background first
    changes: Float[Tensor, "*region 4"]  # of its box, whatever the class


class Detections(NamedTuple):
    """Proposals with what the heads make of them, before the selection rule."""

    proposed: Float[Tensor, "image box 4"]
    found: Bool[Tensor, "image box"]  # pictures have different numbers
    boxes: Float[Tensor, "image box 4"]  # refined
    probabilities: Float[Tensor, "image box class"]  # the background first; 0 where no proposal is
    confidence: Float[Tensor, "image box"]  # 0 where the box does not survive suppression


class BottomUpNetwork(FoldableNetwork):
    backbone: Backbone

    def __init__(self, config: BottomUpConfig, backbone: Backbone | None = None) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone if backbone is not None else load_backbone(config.backbone, pretrained=False)
        self.backbone.check_sides(config.size)
        if config.backbone_freeze >= (parts := len(self.backbone.parts)):
            raise SaccadeError(
                f"backbone_freeze={config.backbone_freeze} leaves nothing of the backbone {config.backbone} to train: "
                f"it has {parts} part{'s' if parts > 1 else ''} (backbone_lr_scale=0 leaves all of it as it is)"
            )
        self.join = FeaturePyramid(self.backbone, config.stride, config.map_dim)
        self.rpn = RegionProposalNetwork(config.map_dim, config.rpn_dim, config.scales, config.ratios)
        self.first_under = -1 if config.under == "last" else 0  # of the backbone's maps
        self.regions = RegionHead(config, sum(self.backbone.channels[self.first_under :]))
        self.classes = nn.Linear(config.dim, 1 + len(config.classes))
        self.changes = nn.Linear(config.dim, 4)
        self.attributes = AttributeHead(
            config.dim, config.class_dim, config.attribute_hidden, len(config.classes), len(config.attributes)
        )
        sizes = (config.dim, config.class_dim, config.relation_hidden, len(config.classes))
        self.relations = RelationHead(*sizes, config.predicates) if config.predicates else None
        nn.init.normal_(self.classes.weight, std=0.01)
        nn.init.normal_(self.changes.weight, std=0.001)
        nn.init.zeros_(self.changes.bias)

    def train(self, mode: bool = True) -> BottomUpNetwork:
        """The backbone's batch normalisation stays as it was trained: a detector's batches are too few to learn it."""
        super().train(mode)
        self.backbone.eval()
        return self

    def maps(self, pixels: UInt8[Tensor, "image height width 3"]) -> DetectorMaps:
        pictures = self.backbone.normalise(pixels).contiguous(memory_format=torch.channels_last)
        levels = self.backbone(pictures)
        return DetectorMaps(self.join(levels), tuple(levels[self.first_under :]))

    def vectors(self, maps: DetectorMaps, boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region dim"]:
        """The pooled features: what a feature store keeps of each region."""
        vectors: Tensor = self.regions(maps, boxes)
        return vectors

    def classify(self, vectors: Float[Tensor, "*region dim"]) -> HeadOutput:
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        return HeadOutput(self.classes(vectors).float(), self.changes(vectors).float())

    def attribute_logits(
        self, vectors: Float[Tensor, "*region dim"], labels: Int[Tensor, "*region"]
    ) -> Float[Tensor, "*region attribute"]:
        """ "None" first, of regions whose class (background 0) is known or guessed."""
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        logits: Tensor = self.attributes(vectors, labels).float()
        return logits

    def relation_logits(
        self,
        vectors: Float[Tensor, "image region dim"],
        labels: Int[Tensor, "image region"],
        boxes: Float[Tensor, "image region 4"],
    ) -> Float[Tensor, "image subject object predicate"]:
        """ "None" first, of every region to every other, whose classes (background 0) are known or guessed."""
        assert self.relations is not None
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        logits: Tensor = self.relations(vectors, labels, boxes).float()
        return logits

    def detect(self, maps: DetectorMaps, candidates: int, proposals: int) -> Detections:
        """At most `proposals` boxes a picture, of the `candidates` best anchors, best first."""
        c = self.config
        output = self.rpn(maps.joined)
        proposed, objectness, found = propose(output, candidates, proposals, c.proposal_overlap, kinds=c.anchor_kinds)
        heads = self.classify(self.vectors(maps, proposed))
        boxes, probabilities = refine(proposed, heads.changes), heads.classes.softmax(dim=-1) * found[..., None]
        if c.select_by == "class":
            confidence = class_confidence(boxes, probabilities, c.class_overlap, floor=MIN_CLASS_SCORE)
        else:
            confidence = (1 - probabilities[..., 0]) * objectness.sqrt()
            confidence = confidence * nms(boxes, confidence, c.thing_overlap)
        return Detections(proposed, found, boxes, probabilities, confidence)


def refine(boxes: Float[Tensor, "*region 4"], changes: Float[Tensor, "*region 4"]) -> Float[Tensor, "*region 4"]:
    """The boxes as the head changes them, inside the picture."""
    return clip(decode(torch.cat([changes[..., :2] * MIDDLE_SCALE, changes[..., 2:] * SIDE_SCALE], dim=-1), boxes))


def refinement(boxes: Float[Tensor, "*region 4"], truth: Float[Tensor, "*region 4"]) -> Float[Tensor, "*region 4"]:
    """The changes that would `refine` the boxes to the true ones."""
    changes = encode(truth, boxes)
    return torch.cat([changes[..., :2] / MIDDLE_SCALE, changes[..., 2:] / SIDE_SCALE], dim=-1)


class RegionHead(nn.Module):
    """Boxes to vectors, without a negative number in them, as pool5 has none."""

    def __init__(self, config: BottomUpConfig, channels: int) -> None:
        super().__init__()
        self.size = config.roi_size
        cells = (config.roi_size + 1) // 2
        self.look = nn.Conv2d(config.map_dim, config.roi_dim, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(norm_groups(config.roi_dim), config.roi_dim)
        self.inside = nn.Linear(config.roi_dim * cells * cells, config.dim // 2)
        self.shape = nn.Linear(GEOMETRY_DIM, config.dim // 2)
        self.under = nn.Linear(channels, config.dim - config.dim // 2)

    def forward(self, maps: DetectorMaps, boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region dim"]:
        images, regions = boxes.shape[:2]
        hidden = functional.relu(self.norm(self.look(points_inside(maps.joined, boxes, self.size))))
        inside = self.inside(hidden.flatten(1)) + self.shape(geometry(boxes.float().flatten(0, 1)))
        under = self.under(torch.cat([mean_under(one, boxes) for one in maps.under], dim=-1))
        return functional.relu(torch.cat([inside.view(images, regions, -1), under], dim=-1)).float()


def bottomup_loss(network: BottomUpNetwork, batch: BoxedPictures, vary: bool = True) -> dict[str, Float[Tensor, ""]]:
    """The parts of the loss: objectness and boxes of the proposals; classes, boxes and attributes of the regions.

    No part of it waits for the GPU.
    """
    c, pixels, truth, real = network.config, batch.pixels, batch.boxes.float(), batch.real
    mirrored = torch.zeros(len(pixels), dtype=torch.bool, device=pixels.device)
    if vary:
        pixels, truth, real, mirrored = augment_with_boxes(pixels, truth, real, c.size, CROP, COLOUR)
    maps = network.maps(pixels)
    output = network.rpn(maps.joined)
    objectness, fit = rpn_loss(output, truth, real)

    with torch.no_grad():
        proposed, _, found = propose(
            output, c.candidates, c.proposals, c.proposal_overlap, TRAINING_NMS_ROUNDS, c.anchor_kinds
        )
        boxes = torch.cat([proposed, jitter(truth, BOX_JITTER), truth], dim=1)
        there = torch.cat([found, real, real], dim=1)
        highest, owner = overlaps(boxes, truth, real).max(dim=2)
        is_thing = (highest >= POSITIVE_IOU) & there
        position, drawn, positive = draw_both(is_thing, ~is_thing & there, DRAWN_REGIONS, DRAWN_POSITIVES)
        boxes, owner = pick(boxes, position), pick(owner, position)
        wanted = torch.where(positive, pick(batch.labels, owner), torch.zeros_like(owner))
        change = refinement(boxes, pick(truth, owner))

    vectors = network.vectors(maps, boxes)
    heads = network.classify(vectors)
    said = batch.labels[..., None] if batch.said is None else batch.said
    said = torch.where(positive[..., None], pick(said, owner), torch.zeros_like(owner)[..., None])
    label, known = mean_surprise(heads.classes, said)
    misfit = functional.smooth_l1_loss(heads.changes, change, reduction="none").sum(dim=-1)
    losses = {
        "objectness": objectness,
        "proposals": fit,
        "classes": mean_where(label, drawn & known),
        "boxes": mean_where(misfit, positive),
    }
    if c.name_weight:
        named = network.classify(network.vectors(maps, truth)).classes[..., 1:]  # these boxes are no background
        name = torch.where(batch.labels == UNKNOWN, UNKNOWN, batch.labels - 1)
        surprise, known = mean_surprise(named, name[..., None])
        losses["names"] = c.name_weight * mean_where(surprise, real & known)
    if c.attributes:
        described = network.attribute_logits(vectors, wanted.clamp(min=0))
        losses["attributes"] = ATTRIBUTE_WEIGHT * attribute_loss(described, pick(batch.attributes, owner), positive)
    if network.relations is not None and batch.relations is not None:
        boxes = jitter(truth, BOX_JITTER)
        logits = network.relation_logits(network.vectors(maps, boxes), batch.labels.clamp(min=0), boxes)
        predicate = batch.relations[..., 2]
        predicate = torch.where(mirrored[:, None], network.relations.mirrored[predicate.clamp(min=0)], predicate)
        losses["relations"] = relation_loss(logits, torch.dstack([batch.relations[..., :2], predicate]), real)
    return losses


class BottomUpExtractor(RegionExtractor):
    """A trained detector as an extractor. Its weights may be kept in a smaller form and are used in float32."""

    has_bfloat16 = True
    max_cpu_batch = 8  # more at once is slower there, as for the grid extractor

    def __init__(self, network: BottomUpNetwork, name: str = "bottomup", weights: str = "") -> None:
        network.fold_normalisation()
        self.network: BottomUpNetwork = for_inference(network)
        self.name = name
        self.weights = weights  # digest of the weights file
        self.digest = _digest(weights, network.config)
        self.dim = network.config.dim
        self.picture_size = network.config.size

    @property
    def config(self) -> BottomUpConfig:
        return self.network.config

    def regions(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> RegionBatch:
        """The regions that the rule selects, boxes refined, and the whole picture as the last; or those given."""
        maps = self.network.maps(upload(pictures, self.device))
        if boxes is not None:
            places, real = padded_boxes(boxes, self.device)
            scores = real.to(places.dtype)
        else:
            places, scores, real = self.select(maps)
            if self.config.whole:
                places, scores, real = with_whole_picture(places, scores, real)
        return padded_regions(self.network.vectors(maps, places), places, scores, real)

    def select(
        self, maps: DetectorMaps
    ) -> tuple[Float[Tensor, "image region 4"], Float[Tensor, "image region"], Bool[Tensor, "image region"]]:
        """The selection rule on refined proposals: boxes, their confidence, and which of them are there."""
        c = self.config
        found = self.network.detect(maps, c.candidates, c.proposals)
        order, real = select(found.confidence, c.confidence, c.least, c.most, found.found)
        longest = int(real.sum(dim=1).max())  # pictures keep far fewer than they may: the rest is not pooled again
        order, real = order[:, :longest], real[:, :longest]
        return pick(found.boxes, order), pick(found.confidence, order), real

    def names(self, regions: RegionBatch, has_whole: bool) -> list[list[RegionDescription]]:
        """The class (`kind`) of each region, and its best `attribute` where it is confident enough.

        The whole picture, where it is the last region, has no name.
        """
        scores = regions.scores if regions.scores is not None else regions.mask.float()
        values = (regions.boxes, scores, *self.best_names(regions.features))
        columns = (value.tolist() for value in values)  # all at once: each copy waits for a GPU
        counts, has_whole = regions.mask.sum(dim=1).tolist(), has_whole and self.config.whole
        return [
            [
                self._named(has_whole and j == count - 1, *region)
                for j, region in enumerate(islice(zip(*picture, strict=True), count))
            ]
            for count, picture in zip(counts, zip(*columns, strict=True), strict=True)
        ]

    def _named(
        self, nameless: bool, box: list[float], score: float, sure: float, label: int, likely: float, attribute: int
    ) -> RegionDescription:
        labels: dict[str, str] = {}
        confidence: dict[str, float] = {}
        if not nameless:
            labels["kind"], confidence["kind"] = self.config.classes[label - 1], sure
            if likely >= self.config.attribute_confidence:
                labels["attribute"], confidence["attribute"] = self.config.attributes[attribute - 1], likely
        return RegionDescription((box[0], box[1], box[2], box[3]), score, labels, confidence)

    def best_names(self, vectors: Float[Tensor, "*region dim"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of each region: the best class's probability and number (1..), the best attribute's probability and number.

        The background and "none" take their part of the probability but are never the answer.
        """
        probability, label = self.network.classify(vectors).classes.softmax(dim=-1)[..., 1:].max(dim=-1)
        label = label + 1
        if not self.config.attributes:
            return probability, label, torch.zeros_like(probability), torch.zeros_like(label)
        likely = self.network.attribute_logits(vectors, label).softmax(dim=-1)
        attribute_probability, attribute = likely[..., 1:].max(dim=-1)
        return probability, label, attribute_probability, attribute + 1

    @property
    def has_relations(self) -> bool:
        return self.network.relations is not None

    @torch.inference_mode()
    def relations(self, regions: RegionBatch) -> list[tuple[PictureRelation, ...]]:
        """The best predicate of each pair, in its surer direction; not of a thing with itself, nor with the whole."""
        regions = regions.to(self.device, torch.float32)
        _, label, _, _ = self.best_names(regions.features)
        logits = self.network.relation_logits(regions.features, label, regions.boxes)
        likely, predicate = logits.softmax(dim=-1)[..., 1:].max(dim=-1)
        part = regions.mask & (regions.boxes != regions.boxes.new_tensor(WHOLE)).any(dim=-1)
        apart = part[:, :, None] & part[:, None] & (iou(regions.boxes, regions.boxes) <= SAME_THING)
        likely = torch.where(apart & (likely > likely.mT), likely, -1.0)
        scores = regions.mask.float() if regions.scores is None else regions.scores
        ranked = (likely * scores[:, :, None] * scores[:, None]).flatten(1)
        order = ranked.topk(min(MAX_RELATIONS, ranked.shape[1]), dim=1).indices
        values = (order // part.shape[1], pick(predicate.flatten(1), order), order % part.shape[1])
        columns = (value.tolist() for value in (*values, pick(likely.flatten(1), order)))
        return [
            tuple(
                PictureRelation(i, self.config.predicates[name], j, sure)
                for i, name, j, sure in zip(*picture, strict=True)
                if sure >= self.config.relation_confidence
            )
            for picture in zip(*columns, strict=True)
        ]

    def save(self, folder: Path | str, facts: Mapping[str, object] | None = None, form: Form = "float16") -> None:
        """Pack the detector into a folder, with `facts` about its training."""
        self.weights = write_detector(Path(folder), "bottomup", self.network, self.config, facts, form)
        self.digest = _digest(self.weights, self.config)


def _digest(weights: str, c: BottomUpConfig) -> str:
    settings: tuple[object, ...] = (weights, c.least, c.most, c.confidence, c.class_overlap, c.proposals, c.candidates)
    settings += (c.whole, c.size)
    newer = (c.candidates_by_scale, c.select_by, c.thing_overlap)
    settings += newer if newer[:2] != (False, "class") else ()  # a detector from before them keeps its digest
    return hashlib.sha256(repr(settings).encode()).hexdigest()


def open_extractor(argument: str = "") -> BottomUpExtractor:
    """The detector of the package, or of a FOLDER; `@36` or `@10-100` after it sets the number of regions."""
    path, limits = split_count(argument)
    extractor = load_bottomup(path or SHIPPED)
    if limits is not None:
        least, most = limits
        proposals = max(extractor.config.proposals, most)
        extractor.network.config = replace(extractor.config, least=least, most=most, proposals=proposals)
    name = f"bottomup:{argument}" if path else f"bottomup{argument}"
    return BottomUpExtractor(extractor.network, name, extractor.weights)


def load_bottomup(folder: Path | str = SHIPPED) -> BottomUpExtractor:
    """The detector of a model or run folder, or that of the package."""
    place, config = read_detector_config(folder, "bottomup", BottomUpConfig)
    network, digest = read_detector_weights(lambda: BottomUpNetwork(config), place)
    return BottomUpExtractor(network, f"bottomup:{folder}", digest)
