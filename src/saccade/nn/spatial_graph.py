"""A scene graph from boxes alone: what stands near what, and how, in words such as on, in, above and left."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import UNKNOWN, RegionBatch, SceneGraphBatch
from saccade.language import Vocabulary

WORDS = (  # how a region stands to its neighbour; of each row the first word that a vocabulary knows
    ("in", "inside", "within"),
    ("on", "upon"),
    ("above", "over"),
    ("below", "under", "beneath"),
    ("left",),
    ("right",),
    ("near", "by", "next", "beside", "with"),
)
IN, ON, ABOVE, BELOW, LEFT, RIGHT, NEAR = range(len(WORDS))
WITHIN = 0.8  # a region lies in another that covers so much of it


def spatial_words(vocabulary: Vocabulary) -> Int[Tensor, " kind"]:
    """The ids of these words; <unk> for those that captions never use."""
    known = ([vocabulary.id_of(word) for word in row if word in vocabulary] for row in WORDS)
    return torch.tensor([ids[0] if ids else UNKNOWN for ids in known])


def spatial_graph(images: RegionBatch, words: Int[Tensor, " kind"], neighbours: int) -> SceneGraphBatch:
    """Every region stands to each of its nearest `neighbours` somehow; none has a name or attributes."""
    boxes, mask = images.boxes, images.mask
    count, regions = mask.shape
    nearest, there = nearest_regions(boxes, mask, neighbours)
    kinds = how_they_stand(boxes).gather(2, nearest)
    subjects = torch.arange(regions, device=boxes.device)[:, None].expand_as(nearest)
    relations = torch.stack([subjects, nearest, words.to(boxes.device)[kinds]], dim=3)
    none = nearest.new_zeros(count, 0)
    return SceneGraphBatch(
        nearest.new_zeros(count, regions),
        mask,
        relations.flatten(1, 2),
        there.flatten(1),
        none,
        none[:, :, None],
        none[:, :, None].bool(),
    )


def nearest_regions(
    boxes: Float[Tensor, "image region 4"], mask: Bool[Tensor, "image region"], neighbours: int
) -> tuple[Int[Tensor, "image region neighbour"], Bool[Tensor, "image region neighbour"]]:
    """By the distance of their centres, of equals the first; and which of them are there."""
    regions = mask.shape[1]
    centres = (boxes[:, :, :2] + boxes[:, :, 2:]) / 2
    apart = (centres[:, :, None] - centres[:, None]).square().sum(dim=3)
    itself = torch.eye(regions, dtype=torch.bool, device=boxes.device)
    apart = apart.masked_fill(itself | ~mask[:, None], float("inf"))
    distances, order = apart.sort(dim=2, stable=True)  # stable: padding must not change who comes first
    there = distances[:, :, :neighbours].isfinite() & mask[:, :, None]
    return order[:, :, :neighbours], there


def how_they_stand(boxes: Float[Tensor, "image region 4"]) -> Int[Tensor, "image region region"]:
    """The row of `WORDS` for each pair: inside it, on it (touching from above), beside it to a side, or merely near."""
    one, other = boxes[:, :, None], boxes[:, None]
    overlap = (torch.minimum(one[..., 2:], other[..., 2:]) - torch.maximum(one[..., :2], other[..., :2])).clamp(min=0)
    shared = overlap.prod(dim=-1)
    size = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)
    within = (shared >= WITHIN * size[:, :, None]) & (size[:, :, None] < size[:, None]) & (shared > 0)
    right, down = ((one[..., :2] + one[..., 2:] - other[..., :2] - other[..., 2:]) / 2).unbind(dim=-1)
    touches, sideways = shared > 0, right.abs() > down.abs()
    beside = torch.where(right < 0, LEFT, RIGHT)
    over = torch.where(down < 0, ABOVE, BELOW)
    kinds = torch.where(sideways, beside, over)
    kinds = kinds.masked_fill(touches, NEAR)
    kinds = kinds.masked_fill(touches & ~sideways & (down < 0), ON)
    return kinds.masked_fill(within, IN)
