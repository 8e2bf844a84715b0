"""The region proposal network of Faster R-CNN (Ren, He, Girshick, Sun; NIPS 2015): where is anything at all?

Around each cell of a map stand anchors, boxes of a few sizes and shapes. For each the network gives a logit that a
thing fills it, and the change that makes it the thing's box:

    t = ((x − x_a)/w_a, (y − y_a)/h_a, log(w/w_a), log(h/h_a))            x, y the middle; a the anchor's

It learns from anchors drawn at random: those that overlap a true box by more than 0.7, or best of all, are positive,
those below 0.3 with every true box negative, the rest are left out. Sides are fractions of the picture, as boxes are
everywhere in Saccade, so the same anchors serve every picture size. What is drawn has a fixed shape, padded where a
picture has too few, so that a training step never waits for the GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.boxes import UNKNOWN, Proposals, Real, Truth, cell_middles, clip, overlaps, pick, valid
from saccade.vision.nms import nms_sorted

MAX_LOG_GROWTH = math.log(1000 / 16)  # of a side in one change: exp of anything would overflow
MIN_BOX_SIDE = 1e-4  # before its logarithm is taken
MIN_PROPOSAL_SIDE = 0.01
POSITIVE_IOU, NEGATIVE_IOU = 0.7, 0.3
MIN_BEST_IOU = 0.2  # an anchor is not a thing's best if it hardly touches it
DRAWN_ANCHORS = 256  # a picture, at most half of them positive
TRAINING_NMS_ROUNDS = 8


def anchor_sides(scales: Sequence[float], ratios: Sequence[float]) -> Float[Tensor, "kind 2"]:
    """Width and height of one anchor for each scale (√area) and ratio (width/height)."""
    return torch.tensor([(s * math.sqrt(r), s / math.sqrt(r)) for s in scales for r in ratios], dtype=torch.float32)


def anchor_boxes(rows: int, columns: int, sides: Float[Tensor, "kind 2"]) -> Float[Tensor, "anchor 4"]:
    """One of each kind around each cell's middle, row by row, column by column. They may leave the picture."""
    middles = cell_middles(rows, columns, sides.device)[:, :, None]
    return torch.cat([middles - sides / 2, middles + sides / 2], dim=-1).view(-1, 4)


def encode(boxes: Float[Tensor, "*batch 4"], anchors: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """What to change an anchor by to get the box: shift of the middle in units of its sides, log growth of these."""
    middle, side = _middle_and_side(boxes)
    anchor_middle, anchor_side = _middle_and_side(anchors)
    return torch.cat([(middle - anchor_middle) / anchor_side, (side / anchor_side).log()], dim=-1)


def decode(
    changes: Float[Tensor, "*batch 4"], anchors: Float[Tensor, "*batch 4"], max_log_growth: float = MAX_LOG_GROWTH
) -> Float[Tensor, "*batch 4"]:
    """The box that a change makes of an anchor, whose sides grow by e^`max_log_growth` at most."""
    anchor_middle, anchor_side = _middle_and_side(anchors)
    middle = anchor_middle + changes[..., :2] * anchor_side
    half = anchor_side * changes[..., 2:].clamp(max=max_log_growth).exp() / 2
    return torch.cat([middle - half, middle + half], dim=-1)


def _middle_and_side(boxes: Float[Tensor, "*batch 4"]) -> tuple[Float[Tensor, "*batch 2"], Float[Tensor, "*batch 2"]]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]).clamp(min=MIN_BOX_SIDE)


class RPNOutput(NamedTuple):
    """Of every anchor."""

    logits: Float[Tensor, "image anchor"]  # that a thing fills it
    changes: Float[Tensor, "image anchor 4"]
    anchors: Float[Tensor, "anchor 4"]


class RegionProposalNetwork(nn.Module):
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

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> RPNOutput:
        hidden = functional.relu(self.look(maps))
        logits = self.objectness(hidden).permute(0, 2, 3, 1).flatten(1).float()
        changes = self.changes(hidden).permute(0, 2, 3, 1).flatten(1).view(len(maps), -1, 4).float()
        rows, columns = maps.shape[-2:]
        return RPNOutput(logits, changes, anchor_boxes(rows, columns, self.sides))


@torch.no_grad()
def propose(
    output: RPNOutput,
    candidates: int,
    count: int,
    overlap: float = 0.7,
    rounds: int | None = None,
    kinds: tuple[int, int] = (1, 1),
) -> Proposals:
    """At most `count` boxes a picture, best first, with their probabilities and which of them are real.

    With `kinds`, how many scales and ratios the anchors have, each scale has its share of the candidates: the best of
    all are hundreds around the same few large things. With `rounds` set, as in training, the suppression never waits
    for a GPU.
    """
    scales, ratios = kinds
    logits = output.logits.view(len(output.logits), -1, scales, ratios)
    each = logits.transpose(1, 2).flatten(2)  # [image, scale, cell · ratio]
    best, place = each.topk(min(candidates // scales, each.shape[2]), dim=2)
    scale = torch.arange(scales, device=place.device)[:, None]
    place = (place // ratios * scales + scale) * ratios + place % ratios
    best, place = best.flatten(1), place.flatten(1)
    boxes = clip(decode(pick(output.changes, place), output.anchors[place]))
    score = torch.where(valid(boxes, MIN_PROPOSAL_SIDE), best.sigmoid(), torch.full_like(best, -1.0))
    score, order = score.sort(dim=1, descending=True, stable=True)
    boxes = pick(boxes, order)
    score = torch.where(nms_sorted(boxes, overlap, limit=count, rounds=rounds), score, torch.full_like(score, -1.0))
    score, order = score.sort(dim=1, descending=True, stable=True)
    order, score = order[:, :count], score[:, :count]
    return Proposals(pick(boxes, order), score.clamp(min=0), score > 0)


def rpn_loss(output: RPNOutput, truth: Truth, real: Real) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Cross entropy of the drawn anchors' objectness; smooth L1 of the changes of the positive ones."""
    with torch.no_grad():
        overlap = overlaps(output.anchors, truth, real)  # [image, anchor, thing]
        highest, owner = overlap.max(dim=2)
        best_of_thing = overlap.amax(dim=1, keepdim=True)
        is_best = ((overlap >= best_of_thing - 1e-6) & (overlap > MIN_BEST_IOU)).any(dim=2)
        position, drawn, positive = draw_both(
            (highest > POSITIVE_IOU) | is_best, (highest < NEGATIVE_IOU) & ~is_best, DRAWN_ANCHORS, DRAWN_ANCHORS // 2
        )
        wanted = encode(pick(truth, pick(owner, position)), output.anchors[position])
    logits = pick(output.logits, position)
    objectness = functional.binary_cross_entropy_with_logits(logits, positive.to(logits.dtype), reduction="none")
    misfit = functional.smooth_l1_loss(pick(output.changes, position), wanted, reduction="none", beta=1 / 9).sum(dim=-1)
    return mean_where(objectness, drawn), mean_where(misfit, positive)


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


def mean_where(values: Float[Tensor, "*shape"], where: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """The mean of the marked values, 0 if none is; what is not marked may be anything, NaN too."""
    return torch.where(where, values, torch.zeros_like(values)).sum() / where.sum().clamp(min=1)


def mean_surprise(
    logits: Float[Tensor, "image region label"], wanted: Int[Tensor, "image region some"]
) -> tuple[Float[Tensor, "image region"], Bool[Tensor, "image region"]]:
    """Cross entropy against the mean over each region's labels, and which regions have any that is known."""
    listed = wanted != UNKNOWN
    surprise = -logits.log_softmax(dim=-1).gather(-1, wanted.clamp(min=0))
    count = listed.sum(dim=-1)
    return torch.where(listed, surprise, surprise.new_zeros(())).sum(dim=-1) / count.clamp(min=1), count > 0
