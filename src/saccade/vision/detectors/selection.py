"""Which of a detector's boxes become the regions of a picture: the rule of Bottom-Up attention (Anderson et al., 2018).

Every class suppresses overlapping boxes by its own scores. A box is worth the best score among the classes for which it
survived, and those worth at least 0.2 are kept: as they were proposed where there are between 10 and 100 of them, the
10 or the 100 best, best first, where there are fewer or more. With both limits at 36 each picture has 36 regions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.vision.boxes import overlap_more
from saccade.vision.nms import greedy_nms, rows_at_once


def class_confidence(
    boxes: Float[Tensor, "image box 4"],
    scores: Float[Tensor, "image box class"],
    overlap: float = 0.3,
    inclusive: bool = False,
    floor: float = 0.0,
) -> Float[Tensor, "image box"]:
    """The best score of each box among the classes whose non-maximum suppression it survives, 0 if there is none.

    `scores` are probabilities with the background in column 0, which is no class. All classes of all pictures go
    through the suppression together, a row for each class of a picture that has any score. Scores below `floor` neither
    suppress nor count, which shortens the rows: a lower score never removes a higher one, so nothing above the floor
    changes.
    """
    images, count = boxes.shape[:2]
    worth = scores.new_zeros(images * count)
    if not count or scores.shape[2] < 2:
        return worth.view(images, count)
    clashes = overlap_more(boxes, boxes, overlap, inclusive)  # [image, box, box]
    by_class = scores[..., 1:].transpose(1, 2).flatten(0, 1)  # [image · class, box]
    by_class = by_class.masked_fill(~(by_class >= floor), -torch.inf)
    counted, row = (by_class >= floor).sum(dim=1).sort(descending=True)
    lengths = [length for length in counted.tolist() if length]  # of the rows, longest first: rows of a like length …
    start = 0
    while start < len(lengths):  # … go together, so many that what is held stays small
        longest, size = lengths[start], rows_at_once(len(lengths) - start, lengths[start], boxes.device)
        chosen = row[start : min(start + size, len(lengths))]
        image = chosen // (scores.shape[2] - 1)
        score, order = by_class[chosen].sort(dim=1, descending=True, stable=True)
        score, order = score[:, :longest], order[:, :longest]
        kept = greedy_nms(_Clash(clashes, image, order), score >= floor)
        worth.scatter_reduce_(
            0, (image[:, None] * count + order).flatten(), torch.where(kept, score, 0.0).flatten(), "amax"
        )
        start += len(chosen)
    return worth.view(images, count)


class _Clash(NamedTuple):
    """The boxes of each row in its own order, compared by the table of its picture."""

    clashes: Bool[Tensor, "image box box"]
    image: Int[Tensor, " row"]
    order: Int[Tensor, "row place"]

    def __call__(self, best: Int[Tensor, "row a"], others: slice) -> Bool[Tensor, "row a b"]:
        first = self.order.gather(1, best)[:, :, None]
        return self.clashes[self.image[:, None, None], first, self.order[:, None, others]]


def select(
    confidence: Float[Tensor, "image box"],
    threshold: float = 0.2,
    least: int = 10,
    most: int = 100,
    real: Bool[Tensor, "image box"] | None = None,
) -> tuple[Int[Tensor, "image region"], Bool[Tensor, "image region"]]:
    """Positions of the boxes to keep, and which of them are there: pictures keep different numbers.

    `real` marks the boxes of a padded batch; a picture that has fewer than `least` keeps them all.
    """
    if not 0 <= least <= most:
        raise ValueError(f"between {least} and {most} boxes: the first must not be larger")
    real = torch.ones_like(confidence, dtype=torch.bool) if real is None else real
    confidence = confidence.masked_fill(~real, -1.0)
    sure = confidence >= threshold
    wanted = sure.sum(dim=1)
    limited = (wanted < least) | (wanted > most)
    best_first = confidence.argsort(dim=1, descending=True, stable=True)
    as_proposed = (~sure).to(torch.uint8).argsort(dim=1, stable=True)
    count = torch.minimum(wanted.clamp(least, most), real.sum(dim=1))
    order = torch.where(limited[:, None], best_first, as_proposed)[:, :most]
    return order, torch.arange(order.shape[1], device=order.device) < count[:, None]
