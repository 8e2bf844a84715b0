"""How good a detector is: recall of the true boxes, names and attributes at true boxes, mean average precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.vision.boxes import WHOLE, suppress
from saccade.vision.detectors.bottomup import FLOOR, BottomUpExtractor, refine
from saccade.vision.detectors.rpn import propose
from saccade.vision.detectors.sampling import overlaps, pick
from saccade.vision.detectors.selection import class_confidence, select
from saccade.vision.detectors.training import UNKNOWN, BoxedPictures

MATCH = 0.5
COUNTS = (10, 36, 100)


def found_things(
    regions: Float[Tensor, "*batch region 4"],
    there: Bool[Tensor, "*batch region"],
    truth: Float[Tensor, "image thing 4"],
    real: Bool[Tensor, "image thing"],
    count: int | None = None,
) -> Bool[Tensor, "image thing"]:
    """Which true boxes one of the first `count` regions overlaps by at least 0.5."""
    overlap = overlaps(regions[..., :count, :], truth, real)
    overlap = overlap.masked_fill(~there[..., :count, None], -1.0)
    return (overlap >= MATCH).any(dim=1) & real


@dataclass
class Tally:
    """Sums over pictures, kept on the device until the end."""

    sums: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, value: Tensor) -> None:
        value = value.sum().double() if value.device.type != "mps" else value.sum().float()
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def share(self, name: str, of: str) -> float:
        return float(self.sums[name]) / max(float(self.sums[of]), 1.0) if name in self.sums else 0.0


def tally_names(
    tally: Tally, logits: Float[Tensor, "thing class"], labels: Int[Tensor, " thing"], name: str = "object"
) -> None:
    """Top-1 and top-5 of the classes (the background left out) at boxes whose class is known."""
    known = labels != UNKNOWN
    order = logits[:, 1:].topk(min(5, logits.shape[1] - 1), dim=1).indices + 1
    hit = (order == labels[:, None]) & known[:, None]
    tally.add(f"{name}s", known)
    tally.add(f"{name}_top1", hit[:, 0])
    tally.add(f"{name}_top5", hit)


def tally_attributes(tally: Tally, logits: Float[Tensor, "thing attribute"], wanted: Int[Tensor, "thing some"]) -> None:
    """At boxes that have attributes: is the best one among them, and what rank has the best of them? Without "none"."""
    listed = wanted != UNKNOWN
    has = listed.any(dim=1)
    values = logits[:, 1:]
    rank = values.argsort(dim=1, descending=True).argsort(dim=1) + 1  # of each attribute
    place = rank.gather(1, (wanted - 1).clamp(min=0)).masked_fill(~listed, values.shape[1] + 1).amin(dim=1)
    tally.add("attributes", has)
    tally.add("attribute_top1", (place == 1) & has)
    tally.add("attribute_top5", (place <= 5) & has)
    tally.add("attribute_rank", place * has)


def name_figures(tally: Tally) -> dict[str, float]:
    figures = {f"object_{top}": tally.share(f"object_{top}", "objects") for top in ("top1", "top5")}
    if "attributes" in tally.sums:
        figures |= {
            f"attribute_{key}": tally.share(f"attribute_{key}", "attributes") for key in ("top1", "top5", "rank")
        }
    return figures


@torch.inference_mode()
def detector_figures(
    extractor: BottomUpExtractor, pictures: BoxedPictures, counts: Sequence[int] = COUNTS, batch_size: int = 64
) -> dict[str, float]:
    """`recall_N`: true boxes that one of N regions overlaps by 0.5, by the selection rule with a fixed N (the whole
    picture not counted); `proposal_recall_N`: of the N best proposals before anything is named; `recall_rule` and
    `regions`: of the rule's own number. Names and attributes are read at true boxes. `map`: mean average precision.
    """
    network, c, tally = extractor.network, extractor.config, Tally()
    precision = AveragePrecision(len(c.classes))
    for start in range(0, len(pictures), batch_size):
        batch = pictures.select(slice(start, start + batch_size)).to(extractor.device)
        maps = network.maps(batch.pixels)
        wide = max(c.proposals, *counts)
        proposed, _, found = propose(network.rpn(maps.joined), max(c.candidates, 4 * wide), wide, c.proposal_overlap)
        named = network.name(network.vectors(maps, proposed))
        boxes, chances = refine(proposed, named.changes), named.classes.softmax(dim=-1) * found[..., None]
        confidence = class_confidence(boxes, chances, c.class_overlap, floor=FLOOR)
        tally.add("things", batch.real)
        for count in counts:
            order, there = select(confidence, c.confidence, count, count, found)
            tally.add(f"recall_{count}", found_things(pick(boxes, order), there, batch.boxes, batch.real))
            tally.add(f"proposal_recall_{count}", found_things(proposed, found, batch.boxes, batch.real, count))
        order, there = select(confidence, c.confidence, c.least, c.most, found)
        tally.add("recall_rule", found_things(pick(boxes, order), there, batch.boxes, batch.real))
        tally.add("regions", there)
        precision.add(boxes, chances, batch)
        vectors = network.vectors(maps, batch.boxes)[batch.real]
        labels, wanted = batch.labels[batch.real], batch.attributes[batch.real]
        logits = network.name(vectors).classes
        tally_names(tally, logits, labels)
        if c.attributes:
            tally_attributes(tally, network.describe(vectors, logits[:, 1:].argmax(dim=1) + 1), wanted)
    figures = {
        f"{kind}_{n}": tally.share(f"{kind}_{n}", "things") for kind in ("recall", "proposal_recall") for n in counts
    }
    figures |= {"recall_rule": tally.share("recall_rule", "things")}
    figures |= {"regions": float(tally.sums["regions"]) / max(len(pictures), 1)} if tally.sums else {}
    return figures | name_figures(tally) | {"map": precision.mean()}


class AveragePrecision:
    """Mean average precision at 0.5: each class's detections, best first, claim each true box once."""

    def __init__(self, classes: int, detections: int = 100, overlap: float = 0.3) -> None:
        self.classes, self.detections, self.overlap = classes, detections, overlap
        self.scores: list[np.ndarray] = []
        self.right: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []
        self.truths = np.zeros(classes + 1, dtype=np.int64)

    def add(
        self,
        boxes: Float[Tensor, "image box 4"],
        chances: Float[Tensor, "image box class"],
        batch: BoxedPictures,
    ) -> None:
        """The best (box, class) pairs of each picture; a pair is wrong if a better one of its class has its thing."""
        count, classes = chances.shape[1:]
        score, place = chances[..., 1:].flatten(1).topk(min(4 * self.detections, count * (classes - 1)), dim=1)
        label = place % (classes - 1) + 1
        found = pick(boxes, place // (classes - 1))
        kept = suppress(found + 2.0 * label[..., None], self.overlap)  # classes lie far apart: each suppresses its own
        score = torch.where(kept, score, torch.zeros_like(score))
        score, order = score.topk(min(self.detections, score.shape[1]), dim=1)
        found, label = pick(found, order), pick(label, order)
        overlap = overlaps(found, batch.boxes, batch.real)
        overlap = overlap.masked_fill(label[..., None] != batch.labels[:, None, :], -1.0)
        best, owner = overlap.max(dim=2)
        hit = best >= MATCH
        same = (owner[:, :, None] == owner[:, None, :]) & hit[:, :, None] & hit[:, None, :]
        first = ~(same & torch.ones_like(same).tril(diagonal=-1)).any(dim=2)
        listed = score > 0.005
        self.scores.append(score[listed].cpu().numpy())
        self.right.append((hit & first)[listed].cpu().numpy())
        self.labels.append(label[listed].cpu().numpy())
        known = batch.labels[batch.real & (batch.labels != UNKNOWN)]
        self.truths += torch.bincount(known, minlength=self.classes + 1).cpu().numpy()

    def mean(self) -> float:
        """Over the classes that occur."""
        if not self.scores:
            return 0.0
        scores, right, labels = (np.concatenate(part) for part in (self.scores, self.right, self.labels))
        values = []
        for label in np.flatnonzero(self.truths):
            mine = labels == label
            values.append(average_precision(scores[mine], right[mine], int(self.truths[label])))
        return float(np.mean(values)) if values else 0.0


def average_precision(scores: np.ndarray, right: np.ndarray, truths: int) -> float:
    """The area under precision over recall, precision made to fall."""
    if not len(scores) or not truths:
        return 0.0
    ranked = right[np.argsort(-scores, kind="stable")]
    hits = np.cumsum(ranked)
    precision = np.maximum.accumulate((hits / np.arange(1, len(hits) + 1))[::-1])[::-1]
    return float((precision * ranked).sum() / truths)


def grid_boxes(*cells: int) -> Float[Tensor, "region 4"]:
    """The cells of n × n grids, for each n given, as boxes."""
    found = []
    for n in cells:
        edge = torch.arange(n + 1, dtype=torch.float32) / n
        y, x = torch.meshgrid(edge[:-1], edge[:-1], indexing="ij")
        found.append(torch.stack([x, y, x + 1 / n, y + 1 / n], dim=-1).view(-1, 4))
    return torch.cat(found) if found else torch.tensor([WHOLE])
