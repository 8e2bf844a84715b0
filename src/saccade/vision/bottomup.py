"""Bottom-Up attention (Anderson, He, Buehler, Teney, Johnson, Gould, Zhang; CVPR 2018): regions that a detector finds.

`bottomup` has the weights that come with the package, `bottomup:FOLDER` those that `recipes/bottomup.py` wrote, and
`@36` at the end asks for that many regions instead of the paper's 10 to 100 (`bottomup@36`, `bottomup:FOLDER@20-50`).
The picture itself is one more region, the last: words that belong to no thing have somewhere to look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from saccade.batch import RegionBatch, stack
from saccade.errors import SaccadeError
from saccade.vision.bottomup_config import BottomUpConfig
from saccade.vision.bottomup_network import BottomUpNetwork, DetectorMaps, refine
from saccade.vision.boxes import WHOLE
from saccade.vision.eye import Eye, RegionDescription, at_rest, split_count
from saccade.vision.eye_files import fill_weights, read_eye_config, write_eye
from saccade.vision.pictures import Picture, ids_of
from saccade.vision.region_sampling import pick
from saccade.vision.rpn import propose
from saccade.vision.selection import class_confidence, select
from saccade.weights_file import Form

RECIPE = "recipes/bottomup.py"
SHIPPED = Path(__file__).parent / "weights" / "bottomup_flickr8k.json"
CPU_BATCH = 8  # more at once is slower there, as for the grid eye
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


class BottomUpEye(Eye):
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

    def see(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        """Without `boxes`: the regions that the rule selects, boxes refined, and the whole picture as the last."""
        parts = [seen.batch() for seen in self.look(images, boxes, batch_size)]
        return replace(stack(parts), ids=ids_of(images)) if parts else RegionBatch.of([], [], scores=[])

    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        """The class (`kind`) of each region `see` returns, and its best `attribute` if the eye is sure enough of it.

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
        self.weights = write_eye(Path(folder) / stem, self.network, self.config, facts, form)
        self.digest = _digest(self.weights, self.config)

    @torch.inference_mode()
    def look(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> Iterator[Seen]:
        """The regions of `batch_size` pictures at a time, padded, on the eye's device."""
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
        """The selection rule on refined proposals: boxes, how sure the eye is of each, and which are there."""
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


def open_eye(argument: str = "") -> BottomUpEye:
    """The detector of the package, or of a FOLDER; `@36` or `@10-100` after it sets the number of regions."""
    path, limits = split_count(argument)
    eye = load_bottomup(Path(path) if path else SHIPPED)
    if limits is not None:
        least, most = limits
        proposals = max(eye.config.proposals, most)
        eye.network.config = replace(eye.config, least=least, most=most, proposals=proposals)
    return BottomUpEye(eye.network, f"bottomup:{argument}" if path else f"bottomup{argument}", eye.weights)


def load_bottomup(path: Path | str = SHIPPED) -> BottomUpEye:
    """A detector from the folder its recipe wrote to, or from its .json file."""
    facts = _facts_file(Path(path))
    network = BottomUpNetwork(read_eye_config(facts, BottomUpConfig, RECIPE))
    network.backbone.fold_normalisation()
    return BottomUpEye(network, f"bottomup:{path}", fill_weights(network, facts))


def _facts_file(path: Path) -> Path:
    if path.suffix == ".json":
        return path
    found = sorted(path.glob("bottomup*.json"))
    if len(found) != 1:
        what = f"{len(found)} detectors ({', '.join(f.name for f in found)})" if found else "no detector"
        raise SaccadeError(f"{path} holds {what}: one bottomup*.json was expected, as {RECIPE} writes it")
    return found[0]
