"""Figures of merit of detectors: recall of true boxes, names and attributes at true boxes, mean average precision.

Boxes, scores and labels in, numbers out; whatever detector they are from. Labels are 1.. of the classes (0 is the
background), and negative where unknown; batches are padded, and `real` marks the true boxes that are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.vision.boxes import overlaps, pick
from saccade.vision.nms import nms_sorted

MATCH_IOU = 0.5
MIN_SCORE = 0.005  # a detection below it is not listed for average precision


def found_boxes(
    regions: Float[Tensor, "*batch region 4"],
    there: Bool[Tensor, "*batch region"],
    truth: Float[Tensor, "image thing 4"],
    real: Bool[Tensor, "image thing"],
    count: int | None = None,
) -> Bool[Tensor, "image thing"]:
    """Which true boxes one of the first `count` regions overlaps by at least 0.5."""
    overlap = overlaps(regions[..., :count, :], truth, real)
    overlap = overlap.masked_fill(~there[..., :count, None], -1.0)
    return (overlap >= MATCH_IOU).any(dim=1) & real


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
    known = labels >= 0
    order = logits[:, 1:].topk(min(5, logits.shape[1] - 1), dim=1).indices + 1
    hit = (order == labels[:, None]) & known[:, None]
    tally.add(f"{name}s", known)
    tally.add(f"{name}_top1", hit[:, 0])
    tally.add(f"{name}_top5", hit)


def tally_attributes(tally: Tally, logits: Float[Tensor, "thing attribute"], wanted: Int[Tensor, "thing some"]) -> None:
    """At boxes that have attributes: is the best one among them, and what rank has the best of them? Without "none"."""
    listed = wanted >= 0
    has = listed.any(dim=1)
    values = logits[:, 1:]
    rank = values.argsort(dim=1, descending=True).argsort(dim=1) + 1  # of each attribute
    place = rank.gather(1, (wanted - 1).clamp(min=0)).masked_fill(~listed, values.shape[1] + 1).amin(dim=1)
    tally.add("attributes", has)
    tally.add("attribute_top1", (place == 1) & has)
    tally.add("attribute_top5", (place <= 5) & has)
    tally.add("attribute_rank", place * has)


def tally_relations(
    tally: Tally,
    logits: Float[Tensor, "image subject object predicate"],
    stated: Bool[Tensor, "image subject object predicate"],
    real: Bool[Tensor, "image thing"],
    count: int = 20,
) -> None:
    """At pairs of which something is stated: is the best predicate, or one of the best five, among it?

    `relation_recall`: of all that is stated, how much is among the picture's `count` surest triplets, whatever pair.
    """
    logits, stated = logits.softmax(dim=-1)[..., 1:], stated[..., 1:]
    related = stated.any(dim=-1)
    best = stated.gather(-1, logits.topk(min(5, logits.shape[-1]), dim=-1).indices)
    tally.add("relations", related)
    tally.add("relation_top1", best[..., 0])
    tally.add("relation_top5", best.any(dim=-1))
    pairs = real[:, :, None] & real[:, None, :] & ~torch.eye(real.shape[1], dtype=torch.bool, device=real.device)
    sure = (logits * pairs[..., None]).flatten(1)
    tally.add("stated", stated)
    tally.add("relation_recall", stated.flatten(1).gather(1, sure.topk(min(count, sure.shape[1]), dim=1).indices))


def name_figures(tally: Tally) -> dict[str, float]:
    figures = {f"object_{top}": tally.share(f"object_{top}", "objects") for top in ("top1", "top5")}
    if "attributes" in tally.sums:
        figures |= {
            f"attribute_{key}": tally.share(f"attribute_{key}", "attributes") for key in ("top1", "top5", "rank")
        }
    if "relations" in tally.sums:
        figures |= {f"relation_{key}": tally.share(f"relation_{key}", "relations") for key in ("top1", "top5")}
        figures["relation_recall_20"] = tally.share("relation_recall", "stated")
    return figures


class MeanAveragePrecision:
    """Mean average precision at 0.5: each class's detections, best first, claim each true box once."""

    def __init__(self, classes: int, max_detections: int = 100, overlap: float = 0.3) -> None:
        self.classes, self.max_detections, self.overlap = classes, max_detections, overlap
        self.scores: list[np.ndarray] = []
        self.right: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []
        self.truths = np.zeros(classes + 1, dtype=np.int64)

    def add(
        self,
        boxes: Float[Tensor, "image box 4"],
        probabilities: Float[Tensor, "image box class"],
        truth: Float[Tensor, "image thing 4"],
        real: Bool[Tensor, "image thing"],
        labels: Int[Tensor, "image thing"],
    ) -> None:
        """The best (box, class) pairs of each picture; a pair is wrong if a better one of its class has its thing."""
        count, classes = probabilities.shape[1:]
        limit = min(4 * self.max_detections, count * (classes - 1))
        score, place = probabilities[..., 1:].flatten(1).topk(limit, dim=1)
        label = place % (classes - 1) + 1
        found = pick(boxes, place // (classes - 1))
        kept = nms_sorted(
            found + 2.0 * label[..., None], self.overlap
        )  # classes lie far apart: each suppresses its own
        score = torch.where(kept, score, torch.zeros_like(score))
        score, order = score.topk(min(self.max_detections, score.shape[1]), dim=1)
        found, label = pick(found, order), pick(label, order)
        overlap = overlaps(found, truth, real)
        overlap = overlap.masked_fill(label[..., None] != labels[:, None, :], -1.0)
        best, owner = overlap.max(dim=2)
        hit = best >= MATCH_IOU
        same = (owner[:, :, None] == owner[:, None, :]) & hit[:, :, None] & hit[:, None, :]
        first = ~(same & torch.ones_like(same).tril(diagonal=-1)).any(dim=2)
        listed = score > MIN_SCORE
        self.scores.append(score[listed].cpu().numpy())
        self.right.append((hit & first)[listed].cpu().numpy())
        self.labels.append(label[listed].cpu().numpy())
        known = labels[real & (labels >= 0)]
        self.truths += torch.bincount(known, minlength=self.classes + 1).cpu().numpy()

    def mean(self) -> float:
        """Over the classes that occur."""
        if not self.scores:
            return 0.0
        scores, right, labels = (np.concatenate(part) for part in (self.scores, self.right, self.labels))
        values = []
        for label in np.flatnonzero(self.truths):
            mine = labels == label
            order = np.argsort(-scores[mine], kind="stable")
            values.append(average_precision(right[mine][order], int(self.truths[label])))
        return float(np.mean(values)) if values else 0.0


def precision_of_ranks(ranks: Int[np.ndarray, " right"], total: int, interpolated: bool = True) -> float:
    """`average_precision` from the ranks of the right detections alone, 0 the best; in rising order."""
    precision = np.arange(1, len(ranks) + 1) / (ranks + 1)
    if interpolated:  # it rises only where a detection is right
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float(precision.sum() / total) if total else 0.0


def average_precision(
    right: Bool[np.ndarray, " ranked"],
    total: int,
    levels: Float[np.ndarray, " level"] | None = None,
    interpolated: bool = True,
) -> float:
    """The area under precision over recall, where precision is the best at that recall or more (`interpolated`).

    `right` says of each detection, best first, whether it is one of the `total` true ones. With `levels`: the mean over
    these levels of recall instead of the area.
    """
    if not total or not right.any():
        return 0.0
    if levels is None:
        return precision_of_ranks(np.flatnonzero(right), total, interpolated)
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(hits) + 1)
    if interpolated:
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    reached = np.searchsorted(hits / total, levels - 1e-12)  # the first rank with this recall
    return float(np.append(precision, 0.0)[np.minimum(reached, len(precision))].mean())
