"""The region proposal network of Faster R-CNN (Ren, He, Girshick, Sun; NIPS 2015): where is anything at all?

At each cell of a map it says for every anchor how likely a thing fills it, and how to change the anchor into the
thing's box. It learns from anchors drawn by lot: those that overlap a true box by more than 0.7, or best of all, are
positive, those below 0.3 with every true box negative, the rest is not asked about.

Anchors: boxes of a few sizes and shapes around every cell of a map, and how a box is written as a change of another.

Sides are fractions of the picture, as boxes are everywhere in Saccade, so the same anchors serve every picture size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.boxes import clip, suppress, valid
from saccade.vision.detectors.sampling import draw_both, mean_where, overlaps, pick

FARTHEST = math.log(1000 / 16)  # how much a side may grow in one change: exp of anything would overflow
MIN_BOX_SIDE = 1e-4  # of a side, before its logarithm is taken


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
    return (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]).clamp(min=MIN_BOX_SIDE)


POSITIVE, NEGATIVE = 0.7, 0.3
LEAST = 0.2  # an anchor is not a thing's best if it hardly touches it
DRAWN = 256  # anchors a picture, at most half of them positive
MIN_PROPOSAL_SIDE = 0.01  # of a side: no proposal is thinner
ROUNDS = 8  # of suppression while training


class Said(NamedTuple):
    """What the network says of every anchor."""

    logits: Float[Tensor, "image anchor"]  # that a thing fills it
    changes: Float[Tensor, "image anchor 4"]
    anchors: Float[Tensor, "anchor 4"]


class RegionProposals(nn.Module):
    """Objectness and changes of every anchor of a map."""

    def __init__(self, inputs: int, dim: int, scales: Sequence[float], ratios: Sequence[float]) -> None:
        super().__init__()
        self.sides: Tensor
        self.register_buffer("sides", anchor_sides(scales, ratios), persistent=False)
        kinds = len(self.sides)
        self.look = nn.Conv2d(inputs, dim, 3, padding=1)
        self.objectness = nn.Conv2d(dim, kinds, 1)
        self.changes = nn.Conv2d(dim, 4 * kinds, 1)
        for layer in (self.objectness, self.changes):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Said:
        hidden = functional.relu(self.look(maps))
        logits = self.objectness(hidden).permute(0, 2, 3, 1).flatten(1).float()
        changes = self.changes(hidden).permute(0, 2, 3, 1).flatten(1).view(len(maps), -1, 4).float()
        rows, columns = maps.shape[-2:]
        return Said(logits, changes, anchor_boxes(rows, columns, self.sides))


@torch.no_grad()
def propose(
    said: Said,
    candidates: int,
    count: int,
    overlap: float = 0.7,
    rounds: int | None = None,
) -> tuple[Float[Tensor, "image proposal 4"], Float[Tensor, "image proposal"], Bool[Tensor, "image proposal"]]:
    """At most `count` boxes a picture, best first, with their probabilities and which of them are real.

    With `rounds` set, as while training, a GPU is never asked whether the suppression is done.
    """
    best, place = said.logits.topk(min(candidates, said.logits.shape[1]), dim=1)
    boxes = clip(decode(pick(said.changes, place), said.anchors[place]))
    score = torch.where(valid(boxes, MIN_PROPOSAL_SIDE), best.sigmoid(), torch.full_like(best, -1.0))
    score, order = score.sort(dim=1, descending=True, stable=True)
    boxes = pick(boxes, order)
    score = torch.where(suppress(boxes, overlap, most=count, rounds=rounds), score, torch.full_like(score, -1.0))
    score, order = score.sort(dim=1, descending=True, stable=True)
    order, score = order[:, :count], score[:, :count]
    return pick(boxes, order), score.clamp(min=0), score > 0


def rpn_loss(
    said: Said, truth: Float[Tensor, "image thing 4"], real: Bool[Tensor, "image thing"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Cross entropy of the drawn anchors' objectness; smooth L1 of the changes of the positive ones."""
    with torch.no_grad():
        overlap = overlaps(said.anchors, truth, real)  # [image, anchor, thing]
        highest, owner = overlap.max(dim=2)
        best_of_thing = overlap.amax(dim=1, keepdim=True)
        is_best = ((overlap >= best_of_thing - 1e-6) & (overlap > LEAST)).any(dim=2)
        position, drawn, positive = draw_both(
            (highest > POSITIVE) | is_best, (highest < NEGATIVE) & ~is_best, DRAWN, DRAWN // 2
        )
        wanted = encode(pick(truth, pick(owner, position)), said.anchors[position])
    logits = pick(said.logits, position)
    objectness = functional.binary_cross_entropy_with_logits(logits, positive.to(logits.dtype), reduction="none")
    misfit = functional.smooth_l1_loss(pick(said.changes, position), wanted, reduction="none", beta=1 / 9).sum(dim=-1)
    return mean_where(objectness, drawn), mean_where(misfit, positive)
