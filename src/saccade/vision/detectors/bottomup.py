"""Bottom-Up attention (Anderson, He, Buehler, Teney, Johnson, Gould, Zhang; CVPR 2018): regions that a detector finds.

`bottomup` has the weights that come with the package, `bottomup:FOLDER` those that `recipes/bottomup.py` wrote, and
`@36` at the end asks for that many regions instead of the paper's 10 to 100 (`bottomup@36`, `bottomup:FOLDER@20-50`).
The picture itself is one more region, the last: words that belong to no thing have somewhere to look.

What a bottom-up detector is made of, how it selects, and what it can name.

The network of Bottom-Up attention: pictures → maps → proposals, and boxes → vectors → classes, boxes and attributes.

The original is Faster R-CNN on ResNet-101. Here the maps of any backbone from stride 8 on are joined, coarse into fine,
and a region's vector has two halves: what the joined map shows at 7 × 7 points inside the box, told the box's shape
that those points do not show; and the mean of the backbone's last map under it, which knows more of kinds than places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import RegionBatch, stack
from saccade.core.errors import SaccadeError
from saccade.core.weights import Form
from saccade.vision.backbones.base import Backbone, load_backbone
from saccade.vision.boxes import GEOMETRY_DIM, WHOLE, clip, geometry
from saccade.vision.detectors.rpn import RegionProposals, decode, encode, propose
from saccade.vision.detectors.sampling import pick
from saccade.vision.detectors.selection import class_confidence, select
from saccade.vision.extractors import (
    RegionDescription,
    RegionExtractor,
    at_rest,
    fill_weights,
    read_extractor_config,
    split_count,
    write_extractor,
)
from saccade.vision.pictures import Picture, ids_of
from saccade.vision.roi import centre_points, sample


@dataclass(frozen=True)
class BottomUpConfig:
    """Selection, overlaps and the attribute head are the paper's; the sizes fit a small backbone."""

    backbone: str = "efficientnet-lite0"
    size: int = 320  # pictures are stretched to this square
    stride: int = 8  # the backbone's maps from this stride on are joined into one
    map_dim: int = 256
    scales: tuple[float, ...] = (0.06, 0.12, 0.24, 0.45, 0.8)  # √area of the anchors, in sides of the picture
    ratios: tuple[float, ...] = (0.4, 0.9, 2.0)  # width/height
    rpn_dim: int = 128
    candidates: int = 1000  # anchors that go into the suppression of proposals
    proposals: int = 150  # boxes that come out of it, at most
    proposal_overlap: float = 0.7
    roi_size: int = 7
    roi_dim: int = 96
    dim: int = 1024  # of a region's vector
    dropout: float = 0.2  # of the vectors, for the heads alone and while training
    class_dim: int = 256  # of the class as the attribute head is told it
    attribute_hidden: int = 512
    class_overlap: float = 0.3
    confidence: float = 0.2  # a region's, to be kept
    least: int = 10  # regions a picture, and
    most: int = 100  # at most
    whole: bool = True  # the picture itself is the last region
    attribute_confidence: float = 0.3  # an attribute's, to be said
    classes: tuple[str, ...] = ()  # the background, number 0 of the scores, is not among them
    attributes: tuple[str, ...] = ()  # "none", number 0, neither


SHIFT, GROWTH = 0.1, 0.2  # a refinement is small: the head's outputs are about 1 for these


class DetectorMaps(NamedTuple):
    """What the network makes of a batch of pictures."""

    joined: Float[Tensor, "image dim row column"]
    coarse: Float[Tensor, "image channel row2 column2"]  # the backbone's last


class Named(NamedTuple):
    """What the heads say of each region."""

    classes: Float[Tensor, "*region class"]  # logits, the background first
    changes: Float[Tensor, "*region 4"]  # of its box, whatever the class


class BottomUpNetwork(nn.Module):
    def __init__(self, config: BottomUpConfig, backbone: Backbone | None = None, pretrained: bool = False) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone if backbone is not None else load_backbone(config.backbone, pretrained)
        self.join = Join(self.backbone, config.stride, config.map_dim)
        self.rpn = RegionProposals(config.map_dim, config.rpn_dim, config.scales, config.ratios)
        self.regions = RegionHead(config, self.backbone.channels[-1])
        self.classes = nn.Linear(config.dim, 1 + len(config.classes))
        self.changes = nn.Linear(config.dim, 4)
        self.attributes = AttributeHead(config)
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
        return DetectorMaps(self.join(levels), levels[-1])

    def vectors(self, maps: DetectorMaps, boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region dim"]:
        """The pooled features: what a feature store keeps of each region."""
        vectors: Tensor = self.regions(maps, boxes)
        return vectors

    def name(self, vectors: Float[Tensor, "*region dim"]) -> Named:
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        return Named(self.classes(vectors).float(), self.changes(vectors).float())

    def describe(
        self, vectors: Float[Tensor, "*region dim"], labels: Int[Tensor, "*region"]
    ) -> Float[Tensor, "*region attribute"]:
        """Logits of the attributes, "none" first, of regions whose class (background 0) is known or guessed."""
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        logits: Tensor = self.attributes(vectors, labels).float()
        return logits


def refine(boxes: Float[Tensor, "*region 4"], changes: Float[Tensor, "*region 4"]) -> Float[Tensor, "*region 4"]:
    """The boxes as the head would have them, inside the picture."""
    return clip(decode(torch.cat([changes[..., :2] * SHIFT, changes[..., 2:] * GROWTH], dim=-1), boxes))


def refinement(boxes: Float[Tensor, "*region 4"], truth: Float[Tensor, "*region 4"]) -> Float[Tensor, "*region 4"]:
    """The changes that would `refine` the boxes to the true ones."""
    changes = encode(truth, boxes)
    return torch.cat([changes[..., :2] / SHIFT, changes[..., 2:] / GROWTH], dim=-1)


class Join(nn.Module):
    """Maps of a backbone as one: each coarser one, brought to the common width, is laid over the next finer."""

    def __init__(self, backbone: Backbone, stride: int, dim: int) -> None:
        super().__init__()
        wanted = [i for i, s in enumerate(backbone.strides) if s >= stride] or [len(backbone.strides) - 1]
        self.levels = tuple(wanted)
        self.laterals = nn.ModuleList(nn.Conv2d(backbone.channels[i], dim, 1) for i in self.levels)
        self.smooth = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False),
            nn.Conv2d(dim, dim, 1, bias=False),
            nn.GroupNorm(_groups(dim), dim),
            nn.ReLU(inplace=True),
        )

    def forward(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        smoothed: Tensor = self.smooth(self.over(levels))
        return smoothed

    def over(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        """Coarse laid over fine, before they are smoothed."""
        joined: Tensor | None = None
        for i, lateral in reversed(list(zip(self.levels, self.laterals, strict=True))):
            level = lateral(levels[i])
            if joined is not None:
                level = level + functional.interpolate(joined, size=level.shape[-2:], mode="nearest")
            joined = level
        assert joined is not None
        return joined


class RegionHead(nn.Module):
    """Boxes to vectors, without a negative number in them, as pool5 has none."""

    def __init__(self, config: BottomUpConfig, coarse: int) -> None:
        super().__init__()
        self.size = config.roi_size
        cells = (config.roi_size + 1) // 2
        self.look = nn.Conv2d(config.map_dim, config.roi_dim, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(_groups(config.roi_dim), config.roi_dim)
        self.inside = nn.Linear(config.roi_dim * cells * cells, config.dim // 2)
        self.shape = nn.Linear(GEOMETRY_DIM, config.dim // 2)
        self.under = nn.Linear(coarse, config.dim - config.dim // 2)

    def forward(self, maps: DetectorMaps, boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region dim"]:
        images, regions = boxes.shape[:2]
        hidden = functional.relu(self.norm(self.look(points_inside(maps.joined, boxes, self.size))))
        inside = self.inside(hidden.flatten(1)) + self.shape(geometry(boxes.float().flatten(0, 1)))
        under = self.under(mean_under(maps.coarse, boxes))
        return functional.relu(torch.cat([inside.view(images, regions, -1), under], dim=-1)).float()


class AttributeHead(nn.Module):
    """What a thing is like depends on what it is: the vector and an embedding of the class, then one hidden layer."""

    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        self.class_vectors = nn.Embedding(1 + len(config.classes), config.class_dim)
        self.hidden = nn.Linear(config.dim + config.class_dim, config.attribute_hidden)
        self.out = nn.Linear(config.attribute_hidden, 1 + len(config.attributes))
        nn.init.normal_(self.class_vectors.weight, std=0.1)

    def forward(
        self, vectors: Float[Tensor, "*region dim"], labels: Int[Tensor, "*region"]
    ) -> Float[Tensor, "*region attribute"]:
        known = self.class_vectors(labels)
        logits: Tensor = self.out(functional.relu(self.hidden(torch.cat([vectors, known], dim=-1))))
        return logits


def points_inside(
    maps: Float[Tensor, "image channel row column"], boxes: Float[Tensor, "image region 4"], size: int
) -> Float[Tensor, "image_region channel size size"]:
    """`roi_bilinear` for pictures with equally many regions: one call, and the GPU is never asked how many."""
    images, regions = boxes.shape[:2]
    points, maps = centre_points(boxes.float().flatten(0, 1), size), maps.float()
    if not (torch.is_grad_enabled() and maps.requires_grad):
        picture = torch.arange(images, device=boxes.device)[:, None].expand(images, regions)
        return sample(maps, points, picture.reshape(-1), padding="border", align_corners=False)
    points = points.view(images, regions * size, size, 2)
    read = functional.grid_sample(maps, points, padding_mode="border", align_corners=False)
    return read.view(images, -1, regions, size, size).transpose(1, 2).flatten(0, 1)


def mean_under(
    maps: Float[Tensor, "image channel row column"], boxes: Float[Tensor, "image region 4"]
) -> Float[Tensor, "image region channel"]:
    """The mean of a map over each box, every cell weighted by how much of it the box covers."""
    boxes = boxes.float()
    rows = _covered(boxes[..., 1], boxes[..., 3], maps.shape[2])
    columns = _covered(boxes[..., 0], boxes[..., 2], maps.shape[3])
    weight = (rows[..., :, None] * columns[..., None, :]).flatten(2)  # [image, region, cell]
    return torch.bmm(weight.to(maps.dtype), maps.flatten(2).transpose(1, 2))


def _covered(
    low: Float[Tensor, "image region"], high: Float[Tensor, "image region"], cells: int
) -> Float[Tensor, "image region cell"]:
    """Each cell's share of the stretch from `low` to `high`; a stretch without length lies in one cell."""
    start = torch.arange(cells, device=low.device, dtype=low.dtype) / cells
    middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-3)
    middle = middle.clamp(1e-3, 1 - 1e-3)
    low, high = (middle - half)[..., None], (middle + half)[..., None]
    shared = (torch.minimum(high, start + 1 / cells) - torch.maximum(low, start)).clamp(min=0)
    return shared / shared.sum(dim=-1, keepdim=True)


def _groups(channels: int) -> int:
    """Of a group normalisation: 16, or as many as divide the channels."""
    return next(g for g in (16, 8, 4, 2, 1) if channels % g == 0)


RECIPE = "recipes/bottomup.py"
SHIPPED = Path(__file__).parents[1] / "weights" / "bottomup_flickr8k.json"
CPU_BATCH = 8  # more at once is slower there, as for the grid extractor
FLOOR = 0.01  # class scores below this neither suppress nor count: boxes without any higher stay as they were proposed


@dataclass(frozen=True)
class Seen:
    """One batch of pictures after the network."""

    vectors: Float[Tensor, "image region dim"]
    boxes: Float[Tensor, "image region 4"]
    scores: Float[Tensor, "image region"]
    real: Bool[Tensor, "image region"]
    whole: bool  # whether the last real region of each picture is the picture

    def batch(self) -> RegionBatch:
        """In memory, with zeros where no region is."""
        vectors, boxes = (part * self.real[..., None] for part in (self.vectors, self.boxes))
        return RegionBatch(vectors, self.real, boxes, scores=self.scores * self.real).to("cpu")


class BottomUpExtractor(RegionExtractor):
    """A trained detector. Weights may be kept smaller (see `weights_file`) and are used in float32."""

    def __init__(self, network: BottomUpNetwork, name: str = "bottomup", weights: str = "") -> None:
        network.backbone.fold_normalisation()
        self.network: BottomUpNetwork = at_rest(network)
        c = network.config
        self.name = name
        self.weights = weights  # digest of the weights file
        self.digest = _digest(weights, c)
        self.dim = c.dim
        self.picture_size = c.size

    @property
    def config(self) -> BottomUpConfig:
        return self.network.config

    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        """Without `boxes`: the regions that the rule selects, boxes refined, and the whole picture as the last."""
        parts = [seen.batch() for seen in self.look(images, boxes, batch_size)]
        return replace(stack(parts), ids=ids_of(images)) if parts else RegionBatch.of([], [], scores=[])

    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        """The class (`kind`) of each region `extract` returns, and its best `attribute` where it is sure enough.

        The whole picture, where it is the last region, is no thing and has no name.
        """
        return [picture for seen in self.look(images, boxes, batch_size) for picture in self._named(seen)]

    @torch.inference_mode()
    def recognise(self, regions: RegionBatch) -> list[list[RegionDescription]]:
        """As `describe`: names are read from the vectors that a store keeps. A region that is all of it is no thing."""
        regions = regions.to(self.device, torch.float32)
        scores = regions.scores if regions.scores is not None else regions.mask.float()
        last = pick(regions.boxes, (regions.mask.sum(dim=1, keepdim=True) - 1).clamp(min=0))[:, 0]
        whole = bool((last == torch.tensor(WHOLE, device=self.device)).all())
        return self._named(Seen(regions.features, regions.boxes, scores, regions.mask, whole))

    def _named(self, seen: Seen) -> list[list[RegionDescription]]:
        values = (*self.names(seen.vectors), seen.boxes, seen.scores, seen.real.sum(dim=1))
        columns = zip(*(value.tolist() for value in values), strict=True)  # all of it at once: a GPU answers slowly
        return [self._named_picture(seen.whole, *picture) for picture in columns]

    def _named_picture(
        self,
        whole: bool,
        sure: list[float],
        label: list[int],
        attribute_sure: list[float],
        attribute: list[int],
        boxes: list[list[float]],
        scores: list[float],
        count: int,
    ) -> list[RegionDescription]:
        found = []
        for j, (x1, y1, x2, y2) in enumerate(boxes[:count]):
            labels: dict[str, str] = {}
            confidence: dict[str, float] = {}
            if not (whole and j == count - 1):
                labels["kind"] = self.config.classes[label[j] - 1]
                confidence["kind"] = sure[j]
                if attribute_sure[j] >= self.config.attribute_confidence:
                    labels["attribute"] = self.config.attributes[attribute[j] - 1]
                    confidence["attribute"] = attribute_sure[j]
            found.append(RegionDescription((x1, y1, x2, y2), scores[j], labels, confidence))
        return found

    def names(self, vectors: Float[Tensor, "*region dim"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of each region: the best class's probability and number (1..), the best attribute's probability and number.

        The background and "none" take their part of the probability but are never the answer.
        """
        chances = self.network.name(vectors).classes.softmax(dim=-1)
        sure, label = chances[..., 1:].max(dim=-1)
        label = label + 1
        if not self.config.attributes:
            return sure, label, torch.zeros_like(sure), torch.zeros_like(label)
        likely = self.network.describe(vectors, label).softmax(dim=-1)
        attribute_sure, attribute = likely[..., 1:].max(dim=-1)
        return sure, label, attribute_sure, attribute + 1

    def save(
        self,
        folder: Path | str,
        facts: dict[str, object] | None = None,
        stem: str = "bottomup",
        form: Form = "float16",
    ) -> None:
        """Write `<stem>.safetensors` and `<stem>.json`: config with class and attribute names, and `facts`."""
        self.weights = write_extractor(Path(folder) / stem, self.network, self.config, facts, form)
        self.digest = _digest(self.weights, self.config)

    @torch.inference_mode()
    def look(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> Iterator[Seen]:
        """The regions of `batch_size` pictures at a time, padded, on the extractor's device."""
        if self.device.type == "cpu":
            batch_size = min(batch_size, CPU_BATCH)
        for arrays, given in self.batches(images, boxes, batch_size):
            yield self.regions(torch.from_numpy(np.stack(arrays)).to(self.device), given)

    def regions(self, pixels: UInt8[Tensor, "image size size 3"], given: list[Tensor] | None = None) -> Seen:
        maps = self.network.maps(pixels)
        if given is not None:
            boxes = torch.nn.utils.rnn.pad_sequence(given, batch_first=True).to(self.device)
            counts = torch.tensor([len(g) for g in given], device=self.device)
            real = torch.arange(boxes.shape[1], device=self.device) < counts[:, None]
            return Seen(self.network.vectors(maps, boxes), boxes, real.to(boxes.dtype), real, whole=False)
        boxes, scores, real = self.find(maps)
        if self.config.whole:
            boxes, scores, real = _with_whole(boxes, scores, real)
        return Seen(self.network.vectors(maps, boxes), boxes, scores, real, whole=self.config.whole)

    def find(
        self, maps: DetectorMaps
    ) -> tuple[Float[Tensor, "image region 4"], Float[Tensor, "image region"], Bool[Tensor, "image region"]]:
        """The selection rule on refined proposals: boxes, how sure the extractor is of each, and which are there."""
        c = self.config
        proposed, _, found = propose(self.network.rpn(maps.joined), c.candidates, c.proposals, c.proposal_overlap)
        named = self.network.name(self.network.vectors(maps, proposed))
        boxes = refine(proposed, named.changes)
        chances = named.classes.softmax(dim=-1) * found[..., None]
        confidence = class_confidence(boxes, chances, c.class_overlap, floor=FLOOR)
        order, real = select(confidence, c.confidence, c.least, c.most, found)
        longest = int(real.sum(dim=1).max())  # pictures keep far fewer than they may: the rest is not pooled again
        order, real = order[:, :longest], real[:, :longest]
        return pick(boxes, order), pick(confidence, order), real


def _digest(weights: str, c: BottomUpConfig) -> str:
    settings = (weights, c.least, c.most, c.confidence, c.class_overlap, c.proposals, c.candidates, c.whole, c.size)
    return hashlib.sha256(repr(settings).encode()).hexdigest()


def _with_whole(boxes: Tensor, scores: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The whole picture after the last real region of each picture, sure as can be."""
    images, device = len(boxes), boxes.device
    boxes, scores, real = (torch.cat([part, torch.zeros_like(part[:, :1])], dim=1) for part in (boxes, scores, real))
    picture, last = torch.arange(images, device=device), real.sum(dim=1)
    boxes[picture, last] = torch.tensor(WHOLE, device=device)
    scores[picture, last] = 1.0
    real[picture, last] = True
    return boxes, scores, real


def open_extractor(argument: str = "") -> BottomUpExtractor:
    """The detector of the package, or of a FOLDER; `@36` or `@10-100` after it sets the number of regions."""
    path, limits = split_count(argument)
    extractor = load_bottomup(Path(path) if path else SHIPPED)
    if limits is not None:
        least, most = limits
        proposals = max(extractor.config.proposals, most)
        extractor.network.config = replace(extractor.config, least=least, most=most, proposals=proposals)
    return BottomUpExtractor(
        extractor.network, f"bottomup:{argument}" if path else f"bottomup{argument}", extractor.weights
    )


def load_bottomup(path: Path | str = SHIPPED) -> BottomUpExtractor:
    """A detector from the folder its recipe wrote to, or from its .json file."""
    facts = _facts_file(Path(path))
    network = BottomUpNetwork(read_extractor_config(facts, BottomUpConfig, RECIPE))
    network.backbone.fold_normalisation()
    return BottomUpExtractor(network, f"bottomup:{path}", fill_weights(network, facts))


def _facts_file(path: Path) -> Path:
    if path.suffix == ".json":
        return path
    found = sorted(path.glob("bottomup*.json"))
    if len(found) != 1:
        what = f"{len(found)} detectors ({', '.join(f.name for f in found)})" if found else "no detector"
        raise SaccadeError(f"{path} holds {what}: one bottomup*.json was expected, as {RECIPE} writes it")
    return found[0]
