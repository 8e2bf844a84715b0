"""Which boxes a detector learns from: each meets the true box it overlaps most, and a few are drawn by lot.

Everything has a fixed shape, padded where a picture has too few, so that a training step never waits for the GPU.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.vision.boxes import iou


def overlaps(
    boxes: Float[Tensor, "*batch box 4"], truth: Float[Tensor, "image thing 4"], real: Bool[Tensor, "image thing"]
) -> Float[Tensor, "image box thing"]:
    """Intersection over union with every true box; −1 with those that are padding."""
    return iou(boxes, truth).masked_fill(~real[:, None, :], -1.0)


def draw(
    eligible: Bool[Tensor, "image box"], count: int
) -> tuple[Int[Tensor, "image count"], Bool[Tensor, "image count"]]:
    """At most `count` of the eligible boxes of each picture, at random: positions, and which of them were eligible."""
    lot = torch.rand(eligible.shape, device=eligible.device).masked_fill(~eligible, -1.0)
    drawn, position = lot.topk(min(count, eligible.shape[1]), dim=1)
    return position, drawn >= 0


def draw_both(
    positive: Bool[Tensor, "image box"], negative: Bool[Tensor, "image box"], count: int, positives: int
) -> tuple[Int[Tensor, "image drawn"], Bool[Tensor, "image drawn"], Bool[Tensor, "image drawn"]]:
    """At most `positives` of the positive boxes, and negative ones until there are `count` in all.

    Returns positions, which of them count, and which of those are positive.
    """
    chosen, is_positive = draw(positive, positives)
    others, is_negative = draw(negative, count)
    room = count - is_positive.sum(dim=1, keepdim=True)
    is_negative = is_negative & (torch.arange(others.shape[1], device=others.device) < room)
    position = torch.cat([chosen, others], dim=1)
    return position, torch.cat([is_positive, is_negative], dim=1), torch.cat([is_positive, is_negative & False], dim=1)


def pick(values: Tensor, position: Int[Tensor, "image drawn"]) -> Tensor:
    """`values[image, position[image, i]]`, whatever axes follow."""
    index = position.reshape(*position.shape, *(1,) * (values.ndim - 2)).expand(*position.shape, *values.shape[2:])
    return values.gather(1, index)


def mean_where(values: Float[Tensor, "*shape"], where: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """The mean of the marked values, 0 if none is; what is not marked may be anything, NaN too."""
    return torch.where(where, values, torch.zeros_like(values)).sum() / where.sum().clamp(min=1)
