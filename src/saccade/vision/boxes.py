"""Box arithmetic. A box is x1, y1, x2, y2 in 0..1 of the picture's width and height, wherever it travels in Saccade.

Every function takes leading batch axes. `inclusive=True` counts a box by its pixels, both ends included, as the older
detectors (DenseCap, the Caffe R-CNNs) do with boxes in pixels: the side is then x2 - x1 + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.core.errors import SaccadeError

WHOLE = (0.0, 0.0, 1.0, 1.0)  # the box of the whole picture
UNKNOWN = -1  # the label of a thing that has none, or one too rare to learn
GEOMETRY_DIM = 8  # numbers that `geometry` gives of a box

Truth: TypeAlias = Float[Tensor, "image thing 4"]  # the true boxes of a padded batch …
Real: TypeAlias = Bool[Tensor, "image thing"]  # … and which of them are there


class Proposals(NamedTuple):
    """Boxes found in each picture, best first, how sure, and which are there: the others are padding."""

    boxes: Float[Tensor, "image count 4"]
    scores: Float[Tensor, "image count"]
    mask: Bool[Tensor, "image count"]


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


def around(boxes: Float[Tensor, "box 4"]) -> Float[Tensor, " 4"]:
    """One box around all."""
    return torch.cat([boxes[:, :2].amin(dim=0), boxes[:, 2:].amax(dim=0)])


def paired_iou(a: Float[Tensor, "*batch 4"], b: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch"]:
    """Intersection over union of `a[i]` with `b[i]`."""
    return iou(a[..., None, :], b[..., None, :])[..., 0, 0]


def overlaps(boxes: Float[Tensor, "*batch box 4"], truth: Truth, real: Real) -> Float[Tensor, "image box thing"]:
    """Intersection over union with every true box of a padded batch; −1 with those that are padding."""
    return iou(boxes, truth).masked_fill(~real[:, None, :], -1.0)


def pick(values: Tensor, position: Int[Tensor, "image chosen"]) -> Tensor:
    """`values[image, position[image, i]]`, whatever axes follow."""
    index = position.reshape(*position.shape, *(1,) * (values.ndim - 2)).expand(*position.shape, *values.shape[2:])
    return values.gather(1, index)


@torch.no_grad()
def overlap_more(
    a: Float[Tensor, "*batch n 4"], b: Float[Tensor, "*batch m 4"], threshold: float, inclusive: bool = False
) -> Bool[Tensor, "*batch n m"]:
    """`iou(a, b) > threshold`, by the same arithmetic, done in place: half the memory traffic."""
    first, second = a.mT.contiguous(), b.mT.contiguous()  # coordinate by coordinate: twice as fast
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


def cell_middles(rows: int, columns: int, device: torch.device) -> Float[Tensor, "row column 2"]:
    """(x, y) of each cell's middle in 0..1."""
    y = (torch.arange(rows, device=device) + 0.5) / rows
    x = (torch.arange(columns, device=device) + 0.5) / columns
    return torch.stack([x[None, :].expand(rows, columns), y[:, None].expand(rows, columns)], dim=-1)


def clip(boxes: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """The part of each box that lies inside the picture."""
    return boxes.clamp(0, 1)


def valid(boxes: Float[Tensor, "*batch 4"], min_side: float = 0.0) -> Bool[Tensor, "*batch"]:
    """Finite, the right way round, with both sides longer than `min_side`."""
    sides = boxes[..., 2:] - boxes[..., :2]
    return boxes.isfinite().all(dim=-1) & (sides > min_side).all(dim=-1)


def jitter(boxes: Float[Tensor, "*batch 4"], amount: float) -> Float[Tensor, "*batch 4"]:
    """Each side moved by up to `amount` of the box's width or height, inside the picture: proposals are never exact."""
    side = boxes[..., 2:] - boxes[..., :2]
    return clip(boxes + torch.cat([side, side], dim=-1) * amount * (torch.rand_like(boxes) * 2 - 1))


def geometry(boxes: Float[Tensor, "region 4"]) -> Float[Tensor, "region 8"]:
    """x1, y1, x2, y2, width, height, √area and log aspect, each shifted and scaled to about unit spread."""
    side = (boxes[:, 2:] - boxes[:, :2]).clamp(min=1e-3)
    size = side.prod(dim=1, keepdim=True).sqrt()
    aspect = (side[:, :1] / side[:, 1:]).log()
    return torch.cat([4 * (boxes - 0.5), 6 * (side - 0.3), 6 * (size - 0.3), 2 * aspect.clamp(-2, 2)], dim=1)


def as_boxes(boxes: np.ndarray | Tensor, where: str) -> Float[Tensor, "region 4"]:
    """Boxes that a user gives, as a float32 tensor.

    Raises: SaccadeError if there is none, one is not x1 < x2 and y1 < y2, or one leaves 0..1.
    """
    found = torch.from_numpy(np.array(boxes, dtype=np.float32))  # a copy: what is given may be read-only
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


def in_pixels(box: Sequence[float], size: tuple[int, int]) -> list[float]:
    """x1, y1, x2, y2 in pixels of a picture of this width and height, to a tenth."""
    return [round(v * side, 1) for v, side in zip(box, size * 2, strict=True)]


def corner_geometry(boxes: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 8"]:
    """x1, y1, x2, y2, the middle, width and height, each scaled to −1..1, as papers on referring have them."""
    middle, side = (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]
    return 2 * torch.cat([boxes, middle, side], dim=-1) - 1
