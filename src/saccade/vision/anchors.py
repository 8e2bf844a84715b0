"""Anchors: boxes of a few sizes and shapes around every cell of a map, and how a box is written as a change of another.

Sides are fractions of the picture, as boxes are everywhere in Saccade, so the same anchors serve every picture size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

FARTHEST = math.log(1000 / 16)  # how much a side may grow in one change: exp of anything would overflow
SMALLEST = 1e-4  # of a side, before its logarithm is taken


def anchor_sides(scales: Sequence[float], ratios: Sequence[float]) -> Float[Tensor, "kind 2"]:
    """Width and height of one anchor for each scale (√area) and ratio (width/height)."""
    return torch.tensor([(s * math.sqrt(r), s / math.sqrt(r)) for s in scales for r in ratios], dtype=torch.float32)


def anchor_boxes(rows: int, columns: int, sides: Float[Tensor, "kind 2"]) -> Float[Tensor, "anchor 4"]:
    """One of each kind around each cell's middle, row by row, column by column. They may leave the picture."""
    width, height = sides.unbind(dim=1)
    y = (torch.arange(rows, device=sides.device) + 0.5) / rows
    x = (torch.arange(columns, device=sides.device) + 0.5) / columns
    shape = (rows, columns, len(sides))
    x, y = x[None, :, None].expand(shape), y[:, None, None].expand(shape)
    return torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], dim=-1).view(-1, 4)


def encode(boxes: Float[Tensor, "*batch 4"], anchors: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """What to change an anchor by to get the box: shift of the middle in units of its sides, log growth of these."""
    middle, side = _middle_and_side(boxes)
    anchor_middle, anchor_side = _middle_and_side(anchors)
    return torch.cat([(middle - anchor_middle) / anchor_side, (side / anchor_side).log()], dim=-1)


def decode(
    changes: Float[Tensor, "*batch 4"], anchors: Float[Tensor, "*batch 4"], farthest: float = FARTHEST
) -> Float[Tensor, "*batch 4"]:
    """The box that a change makes of an anchor, whose sides grow by e^`farthest` at most."""
    anchor_middle, anchor_side = _middle_and_side(anchors)
    middle = anchor_middle + changes[..., :2] * anchor_side
    half = anchor_side * changes[..., 2:].clamp(max=farthest).exp() / 2
    return torch.cat([middle - half, middle + half], dim=-1)


def _middle_and_side(boxes: Float[Tensor, "*batch 4"]) -> tuple[Float[Tensor, "*batch 2"], Float[Tensor, "*batch 2"]]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]).clamp(min=SMALLEST)
