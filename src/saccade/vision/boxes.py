"""Box arithmetic. A box is x1, y1, x2, y2 in 0..1 of the picture's width and height, wherever it travels in Saccade.

Every function takes leading batch axes. `inclusive=True` counts a box by its pixels, both ends included, as the older
detectors (DenseCap, the Caffe R-CNNs) do with boxes in pixels: the side is then x2 - x1 + 1.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.vision.nms import greedily, rows_at_once

WHOLE = (0.0, 0.0, 1.0, 1.0)  # the box of the whole picture
GEOMETRY_DIM = 8  # numbers that say where a box lies and what shape it has


def area(boxes: Float[Tensor, "*batch 4"], inclusive: bool = False) -> Float[Tensor, "*batch"]:
    """Width × height; a box turned inside out has no area."""
    sides = (boxes[..., 2:] - boxes[..., :2] + float(inclusive)).clamp(min=0)
    return sides[..., 0] * sides[..., 1]


def iou(
    a: Float[Tensor, "*batch n 4"], b: Float[Tensor, "*batch m 4"], inclusive: bool = False
) -> Float[Tensor, "*batch n m"]:
    """Intersection over union of every box of `a` with every box of `b`; two boxes without area have 0."""
    width, height = (  # one axis at a time: a table of pairs is large, and this keeps few of them
        torch.minimum(a[..., :, None, i + 2], b[..., None, :, i + 2])
        - torch.maximum(a[..., :, None, i], b[..., None, :, i])
        + float(inclusive)
        for i in (0, 1)
    )
    shared = width.clamp(min=0) * height.clamp(min=0)
    union = area(a, inclusive)[..., :, None] + area(b, inclusive)[..., None, :] - shared
    return torch.where(union > 0, shared / union.clamp(min=torch.finfo(union.dtype).tiny), torch.zeros_like(union))


def paired_iou(a: Float[Tensor, "*batch 4"], b: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch"]:
    """Intersection over union of `a[i]` with `b[i]`."""
    return iou(a[..., None, :], b[..., None, :])[..., 0, 0]


@torch.no_grad()
def overlap_more(
    a: Float[Tensor, "*batch n 4"], b: Float[Tensor, "*batch m 4"], threshold: float, inclusive: bool = False
) -> Bool[Tensor, "*batch n m"]:
    """`iou(a, b) > threshold`, by the same arithmetic, in half the passes: each is done in place."""
    first, second = a.mT.contiguous(), b.mT.contiguous()  # each side of all boxes in one piece: twice as quick
    shared = None
    for i in (0, 1):
        length = torch.minimum(first[..., i + 2, :, None], second[..., i + 2, None, :])
        length -= torch.maximum(first[..., i, :, None], second[..., i, None, :])
        if inclusive:
            length += 1
        length.clamp_(min=0)
        shared = length if shared is None else shared.mul_(length)
    assert shared is not None
    union = area(a, inclusive)[..., :, None] + area(b, inclusive)[..., None, :]
    union.sub_(shared).clamp_(min=torch.finfo(union.dtype).tiny)  # without a union nothing is shared: 0 / tiny
    return shared.div_(union) > threshold


def suppress(
    boxes: Float[Tensor, "row box 4"],
    threshold: float,
    inclusive: bool = False,
    most: int | None = None,
    rounds: int | None = None,
) -> Bool[Tensor, "row box"]:
    """Non-maximum suppression of boxes that stand best first: each removes those that overlap it more than this.

    `most` and `rounds` as for `greedily`: the first so many are wanted, and a GPU is never asked.
    """

    def part(boxes: Float[Tensor, "row box 4"]) -> Bool[Tensor, "row box"]:
        def clash(best: Int[Tensor, "row a"], others: slice) -> Bool[Tensor, "row a b"]:
            chosen = boxes.gather(1, best[..., None].expand(*best.shape, 4))
            return overlap_more(chosen, boxes[:, others], threshold, inclusive)

        return greedily(clash, torch.ones(boxes.shape[:2], dtype=torch.bool, device=boxes.device), most, rounds)

    size = rows_at_once(boxes.shape[0], boxes.shape[1], boxes.device)
    return torch.cat([part(rows) for rows in torch.split(boxes, size)])


def nms(
    boxes: Float[Tensor, "*batch box 4"],
    scores: Float[Tensor, "*batch box"],
    threshold: float,
    inclusive: bool = False,
) -> Bool[Tensor, "*batch box"]:
    """Non-maximum suppression: which boxes stay when each, best first, removes those that overlap it more than this.

    All pictures of a batch go through it together. Of two boxes with the same score the first is the better.
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    ranked = boxes.gather(-2, order[..., None].expand_as(boxes))
    rows = ranked.reshape(order.shape[:-1].numel(), *ranked.shape[-2:])
    kept = suppress(rows, threshold, inclusive).view(order.shape)
    return torch.zeros_like(kept).scatter(-1, order, kept)


def best(scores: Float[Tensor, " box"], kept: Bool[Tensor, " box"], limit: int) -> Int[Tensor, " kept"]:
    """Positions of the kept boxes, best first, at most `limit` of them."""
    order = scores.argsort(descending=True, stable=True)
    return order[kept[order]][:limit]


def clip(boxes: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """The part of each box that lies inside the picture."""
    return boxes.clamp(0, 1)


def valid(boxes: Float[Tensor, "*batch 4"], smallest: float = 0.0) -> Bool[Tensor, "*batch"]:
    """Finite, the right way round, with both sides longer than `smallest`."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return boxes.isfinite().all(dim=-1) & (sides > smallest).all(dim=-1)


def geometry(boxes: Float[Tensor, "region 4"]) -> Float[Tensor, "region 8"]:
    """x1, y1, x2, y2, width, height, √area and log aspect, each shifted and scaled to about unit spread."""
    side = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1e-3)
    size = side.prod(dim=1, keepdim=True).sqrt()
    aspect = (side[:, :1] / side[:, 1:]).log()
    return torch.cat([4 * (boxes - 0.5), 6 * (side - 0.3), 6 * (size - 0.3), 2 * aspect.clamp(-2, 2)], dim=1)


def check_boxes(boxes: np.ndarray | Tensor, where: str) -> Float[Tensor, "region 4"]:
    """Boxes from outside as a float32 tensor, or a sentence on what is wrong with them."""
    found = torch.as_tensor(np.asarray(boxes), dtype=torch.float32)
    if found.ndim != 2 or found.shape[1] != 4:
        raise SaccadeError(f"{where}: boxes must be of shape [region, 4], not {list(found.shape)}")
    if not len(found):
        raise SaccadeError(f"{where}: there is no box, at least one is needed")
    wrong = ~valid(found) | (found < -1e-3).any(dim=1) | (found > 1 + 1e-3).any(dim=1)
    if wrong.any():
        first = int(wrong.nonzero()[0, 0])
        numbers = ", ".join(f"{v:g}" for v in found[first].tolist())
        raise SaccadeError(f"{where}: box {first} is ({numbers}), expected x1 < x2 and y1 < y2, all in 0..1")
    return clip(found)
