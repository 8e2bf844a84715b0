"""Where the things are: a heat map that peaks at the middle of each thing, and the distances to its four sides.

Anchor-free, after CenterNet (Zhou et al. 2019) and FCOS (Tian et al. 2019): no table of anchor shapes to tune, and two
things whose boxes overlap almost wholly (a fish inside a basket) still have two middles.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.boxes import area, clip, nms, paired_iou, valid
from saccade.vision.world_backbone import Convolution

START = -4.0  # the heat before training: a thing is rare


class ProposalHead(nn.Module):
    """From the joined map: a logit for "the middle of a thing is here", and left, top, right, bottom in 0..1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.look = Convolution(dim, dim, kernel=1)
        self.predict = nn.Conv2d(dim, 5, 1)
        nn.init.zeros_(self.predict.weight)
        self.predict.bias = nn.Parameter(torch.tensor([START, *[-2.0] * 4]))  # e⁻² ≈ 0.14, half the side of a thing

    def forward(
        self, maps: Float[Tensor, "image channel row column"]
    ) -> tuple[Float[Tensor, "image row column"], Float[Tensor, "image row column 4"]]:
        found = self.predict(self.look(maps)).float()
        heat = found[:, 0]
        sides = found[:, 1:].clamp(-8, 0.5).exp().permute(0, 2, 3, 1)
        middles = cell_middles(heat.shape[1], heat.shape[2], heat.device)
        return heat, torch.cat([middles - sides[..., :2], middles + sides[..., 2:]], dim=-1)


def cell_middles(rows: int, columns: int, device: torch.device) -> Float[Tensor, "row column 2"]:
    """(x, y) of each cell's middle in 0..1."""
    y = (torch.arange(rows, device=device) + 0.5) / rows
    x = (torch.arange(columns, device=device) + 0.5) / columns
    return torch.stack([x[None, :].expand(rows, columns), y[:, None].expand(rows, columns)], dim=-1)


def peaks(
    heat: Float[Tensor, "image row column"], boxes: Float[Tensor, "image row column 4"], count: int
) -> tuple[Float[Tensor, "image count 4"], Float[Tensor, "image count"]]:
    """The boxes at the `count` highest local maxima of the heat, with their probabilities, best first."""
    highest = functional.max_pool2d(heat[:, None], 3, stride=1, padding=1)[:, 0]
    score = torch.where(heat == highest, heat.sigmoid(), torch.zeros_like(heat)).flatten(1)
    score, place = score.topk(min(count, score.shape[1]), dim=1)
    return clip(boxes.flatten(1, 2).gather(1, place[..., None].expand(-1, -1, 4))), score


def propose(
    heat: Float[Tensor, "image row column"],
    boxes: Float[Tensor, "image row column 4"],
    count: int,
    score_threshold: float,
    nms_threshold: float,
) -> tuple[Float[Tensor, "image count 4"], Float[Tensor, "image count"], Bool[Tensor, "image count"]]:
    """At most `count` boxes a picture, best first, with their scores and which of them are real."""
    found, score = peaks(heat, boxes, 4 * count)
    kept = nms(found, score, nms_threshold) & (score > score_threshold) & valid(found, smallest=0.01)
    score, order = torch.where(kept, score, -torch.ones_like(score)).sort(dim=1, descending=True, stable=True)
    order, score = order[:, :count], score[:, :count]
    return found.gather(1, order[..., None].expand(-1, -1, 4)), score, score > 0


def proposal_loss(
    heat: Float[Tensor, "image row column"],
    boxes: Float[Tensor, "image row column 4"],
    truth: Float[Tensor, "image thing 4"],
    real: Bool[Tensor, "image thing"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Focal loss of the heat against a bump at each middle; 1 − IoU plus distance of the boxes near the middles."""
    rows, columns = heat.shape[1:]
    middles = cell_middles(rows, columns, heat.device)
    centre = (truth[..., :2] + truth[..., 2:]) / 2
    side = (truth[..., 2:] - truth[..., :2]).clamp(min=1e-3)
    away = (middles[None, None] - centre[:, :, None, None]) * heat.new_tensor([columns, rows])  # in cells
    spread = (side * heat.new_tensor([columns, rows]) / 8).clamp(min=0.6)[:, :, None, None]
    bump = torch.exp(-((away / spread) ** 2).sum(dim=-1) / 2) * real[:, :, None, None]  # [image, thing, row, column]
    nearest = ((away**2).sum(dim=-1)).flatten(2).argmin(dim=2)  # each thing's own cell
    target = bump.amax(dim=1).flatten(1) if bump.shape[1] else torch.zeros_like(heat).flatten(1)
    image = torch.arange(len(heat), device=heat.device)[:, None].expand_as(nearest)
    positive = torch.zeros_like(target, dtype=torch.bool)
    positive[image[real], nearest[real]] = True

    logit = heat.flatten(1)
    chance = logit.sigmoid()
    found = -functional.logsigmoid(logit) * (1 - chance) ** 2
    empty = -functional.logsigmoid(-logit) * chance**2 * (1 - target) ** 4
    count = positive.sum().clamp(min=1)
    heat_loss = torch.where(positive, found, empty).sum() / count

    # Each cell within a cell and a half of a middle, and inside that thing, learns the box of the nearest thing.
    inside = (middles[None, None] > truth[:, :, None, None, :2]) & (middles[None, None] < truth[:, :, None, None, 2:])
    distance = (away**2).sum(dim=-1).masked_fill(~(inside.all(dim=-1) & real[:, :, None, None]), float("inf"))
    closest, owner = distance.min(dim=1)
    learns = closest < 1.5**2
    picture = torch.arange(len(heat), device=heat.device)[:, None, None].expand_as(owner)
    predicted, wanted = boxes[learns], truth[picture[learns], owner[learns]]
    overlap = paired_iou(predicted, wanted)
    scale = area(wanted).sqrt()[:, None].clamp(min=0.03)
    misfit = (1 - overlap) + ((predicted - wanted).abs() / scale).mean(dim=-1)
    return heat_loss, misfit.sum() / learns.sum().clamp(min=1)
