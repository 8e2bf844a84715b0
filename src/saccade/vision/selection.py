"""Which of a detector's boxes become the regions of a picture: the rule of Bottom-Up attention (Anderson et al., 2018).

Every class suppresses overlapping boxes by its own scores. A box is worth the best score among the classes for which it
survived, and those worth at least 0.2 are kept: as they were proposed where there are between 10 and 100 of them, the
10 or the 100 best, best first, where there are fewer or more. With both limits at 36 each picture has 36 regions.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.vision.boxes import iou


def class_confidence(
    boxes: Float[Tensor, "image box 4"],
    scores: Float[Tensor, "image box class"],
    overlap: float = 0.3,
    inclusive: bool = False,
    floor: float = 0.0,
) -> Float[Tensor, "image box"]:
    """The best score of each box among the classes whose non-maximum suppression it survives, 0 if there is none.

    `scores` are probabilities with the background in column 0, which is no class. All classes of all pictures go
    through the suppression together, one step per rank: a step takes from each class the box of that rank and removes
    what overlaps it and ranks lower. Scores below `floor` neither suppress nor count, which shortens the ranking:
    a lower score never removes a higher one, so nothing above the floor changes.
    """
    if not boxes.shape[1] or scores.shape[2] < 2:
        return scores.new_zeros(scores.shape[:2])
    clash = iou(boxes, boxes, inclusive) > overlap  # [image, box, box]
    by_class = scores[..., 1:].transpose(1, 2)  # [image, class, box]
    counted = by_class >= floor
    image, label = counted.any(dim=2).nonzero(as_tuple=True)  # a row is a class of a picture that has any score
    score, alive = by_class[image, label], counted[image, label]
    order = score.argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    row = torch.arange(len(image), device=image.device)
    for place in range(int(alive.sum(dim=1).max()) - 1 if len(row) else 0):
        box = order[:, place]
        alive &= ~(clash[image, box] & alive[row, box, None] & (rank > place))
    survived = torch.zeros_like(by_class)
    survived[image, label] = score * alive
    return survived.amax(dim=1)


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
