"""The network of Bottom-Up attention: pictures → maps → proposals, and boxes → vectors → classes, boxes and attributes.

The original is Faster R-CNN on ResNet-101. Here the maps of any backbone from stride 8 on are joined, coarse into fine,
and a region's vector has two halves: what the joined map shows at 7 × 7 points inside the box, told the box's shape
that those points do not show; and the mean of the backbone's last map under it, which knows more of kinds than places.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.anchors import decode, encode
from saccade.vision.backbones import Backbone, load_backbone
from saccade.vision.bottomup_config import BottomUpConfig
from saccade.vision.boxes import GEOMETRY_DIM, clip, geometry
from saccade.vision.roi import centre_points, sample
from saccade.vision.rpn import RegionProposals

SHIFT, GROWTH = 0.1, 0.2  # a refinement is small: the head's outputs are about 1 for these


class DetectorMaps(NamedTuple):
    """What the network makes of a batch of pictures."""

    joined: Float[Tensor, "image dim row column"]
    coarse: Float[Tensor, "image channel row2 column2"]  # the backbone's last


class Named(NamedTuple):
    """What the heads say of each region."""

    classes: Float[Tensor, "*region class"]  # logits, the background first
    changes: Float[Tensor, "*region 4"]  # of its box, whatever the class


class BottomUpNetwork(nn.Module):
    def __init__(self, config: BottomUpConfig, backbone: Backbone | None = None, pretrained: bool = False) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone if backbone is not None else load_backbone(config.backbone, pretrained)
        self.join = Join(self.backbone, config.stride, config.map_dim)
        self.rpn = RegionProposals(config.map_dim, config.rpn_dim, config.scales, config.ratios)
        self.regions = RegionHead(config, self.backbone.channels[-1])
        self.classes = nn.Linear(config.dim, 1 + len(config.classes))
        self.changes = nn.Linear(config.dim, 4)
        self.attributes = AttributeHead(config)
        nn.init.normal_(self.classes.weight, std=0.01)
        nn.init.normal_(self.changes.weight, std=0.001)
        nn.init.zeros_(self.changes.bias)

    def train(self, mode: bool = True) -> BottomUpNetwork:
        """The backbone's batch normalisation stays as it was trained: a detector's batches are too few to learn it."""
        super().train(mode)
        self.backbone.eval()
        return self

    def maps(self, pixels: UInt8[Tensor, "image height width 3"]) -> DetectorMaps:
        pictures = self.backbone.normalise(pixels).contiguous(memory_format=torch.channels_last)
        levels = self.backbone(pictures)
        return DetectorMaps(self.join(levels), levels[-1])

    def vectors(self, maps: DetectorMaps, boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region dim"]:
        """The pooled features: what a feature store keeps of each region."""
        vectors: Tensor = self.regions(maps, boxes)
        return vectors

    def name(self, vectors: Float[Tensor, "*region dim"]) -> Named:
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        return Named(self.classes(vectors).float(), self.changes(vectors).float())

    def describe(
        self, vectors: Float[Tensor, "*region dim"], labels: Int[Tensor, "*region"]
    ) -> Float[Tensor, "*region attribute"]:
        """Logits of the attributes, "none" first, of regions whose class (background 0) is known or guessed."""
        vectors = functional.dropout(vectors, self.config.dropout, self.training)
        logits: Tensor = self.attributes(vectors, labels).float()
        return logits


def refine(boxes: Float[Tensor, "*region 4"], changes: Float[Tensor, "*region 4"]) -> Float[Tensor, "*region 4"]:
    """The boxes as the head would have them, inside the picture."""
    return clip(decode(torch.cat([changes[..., :2] * SHIFT, changes[..., 2:] * GROWTH], dim=-1), boxes))


def refinement(boxes: Float[Tensor, "*region 4"], truth: Float[Tensor, "*region 4"]) -> Float[Tensor, "*region 4"]:
    """The changes that would `refine` the boxes to the true ones."""
    changes = encode(truth, boxes)
    return torch.cat([changes[..., :2] / SHIFT, changes[..., 2:] / GROWTH], dim=-1)


class Join(nn.Module):
    """Maps of a backbone as one: each coarser one, brought to the common width, is laid over the next finer."""

    def __init__(self, backbone: Backbone, stride: int, dim: int) -> None:
        super().__init__()
        wanted = [i for i, s in enumerate(backbone.strides) if s >= stride] or [len(backbone.strides) - 1]
        self.levels = tuple(wanted)
        self.laterals = nn.ModuleList(nn.Conv2d(backbone.channels[i], dim, 1) for i in self.levels)
        self.smooth = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1, groups=dim, bias=False),
            nn.Conv2d(dim, dim, 1, bias=False),
            nn.GroupNorm(_groups(dim), dim),
            nn.ReLU(inplace=True),
        )

    def forward(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        smoothed: Tensor = self.smooth(self.over(levels))
        return smoothed

    def over(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        """Coarse laid over fine, before they are smoothed."""
        joined: Tensor | None = None
        for i, lateral in reversed(list(zip(self.levels, self.laterals, strict=True))):
            level = lateral(levels[i])
            if joined is not None:
                level = level + functional.interpolate(joined, size=level.shape[-2:], mode="nearest")
            joined = level
        assert joined is not None
        return joined


class RegionHead(nn.Module):
    """Boxes to vectors, without a negative number in them, as pool5 has none."""

    def __init__(self, config: BottomUpConfig, coarse: int) -> None:
        super().__init__()
        self.size = config.roi_size
        cells = (config.roi_size + 1) // 2
        self.look = nn.Conv2d(config.map_dim, config.roi_dim, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(_groups(config.roi_dim), config.roi_dim)
        self.inside = nn.Linear(config.roi_dim * cells * cells, config.dim // 2)
        self.shape = nn.Linear(GEOMETRY_DIM, config.dim // 2)
        self.under = nn.Linear(coarse, config.dim - config.dim // 2)

    def forward(self, maps: DetectorMaps, boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image region dim"]:
        images, regions = boxes.shape[:2]
        hidden = functional.relu(self.norm(self.look(points_inside(maps.joined, boxes, self.size))))
        inside = self.inside(hidden.flatten(1)) + self.shape(geometry(boxes.float().flatten(0, 1)))
        under = self.under(mean_under(maps.coarse, boxes))
        return functional.relu(torch.cat([inside.view(images, regions, -1), under], dim=-1)).float()


class AttributeHead(nn.Module):
    """What a thing is like depends on what it is: the vector and an embedding of the class, then one hidden layer."""

    def __init__(self, config: BottomUpConfig) -> None:
        super().__init__()
        self.class_vectors = nn.Embedding(1 + len(config.classes), config.class_dim)
        self.hidden = nn.Linear(config.dim + config.class_dim, config.attribute_hidden)
        self.out = nn.Linear(config.attribute_hidden, 1 + len(config.attributes))
        nn.init.normal_(self.class_vectors.weight, std=0.1)

    def forward(
        self, vectors: Float[Tensor, "*region dim"], labels: Int[Tensor, "*region"]
    ) -> Float[Tensor, "*region attribute"]:
        known = self.class_vectors(labels)
        logits: Tensor = self.out(functional.relu(self.hidden(torch.cat([vectors, known], dim=-1))))
        return logits


def points_inside(
    maps: Float[Tensor, "image channel row column"], boxes: Float[Tensor, "image region 4"], size: int
) -> Float[Tensor, "image_region channel size size"]:
    """`roi_bilinear` for pictures with equally many regions: one call, and the GPU is never asked how many."""
    images, regions = boxes.shape[:2]
    points, maps = centre_points(boxes.float().flatten(0, 1), size), maps.float()
    if not (torch.is_grad_enabled() and maps.requires_grad):
        picture = torch.arange(images, device=boxes.device)[:, None].expand(images, regions)
        return sample(maps, points, picture.reshape(-1), padding="border", align_corners=False)
    points = points.view(images, regions * size, size, 2)
    read = functional.grid_sample(maps, points, padding_mode="border", align_corners=False)
    return read.view(images, -1, regions, size, size).transpose(1, 2).flatten(0, 1)


def mean_under(
    maps: Float[Tensor, "image channel row column"], boxes: Float[Tensor, "image region 4"]
) -> Float[Tensor, "image region channel"]:
    """The mean of a map over each box, every cell weighted by how much of it the box covers."""
    boxes = boxes.float()
    rows = _covered(boxes[..., 1], boxes[..., 3], maps.shape[2])
    columns = _covered(boxes[..., 0], boxes[..., 2], maps.shape[3])
    weight = (rows[..., :, None] * columns[..., None, :]).flatten(2)  # [image, region, cell]
    return torch.bmm(weight.to(maps.dtype), maps.flatten(2).transpose(1, 2))


def _covered(
    low: Float[Tensor, "image region"], high: Float[Tensor, "image region"], cells: int
) -> Float[Tensor, "image region cell"]:
    """Each cell's share of the stretch from `low` to `high`; a stretch without length lies in one cell."""
    start = torch.arange(cells, device=low.device, dtype=low.dtype) / cells
    middle, half = (low + high) / 2, ((high - low) / 2).clamp(min=1e-3)
    middle = middle.clamp(1e-3, 1 - 1e-3)
    low, high = (middle - half)[..., None], (middle + half)[..., None]
    shared = (torch.minimum(high, start + 1 / cells) - torch.maximum(low, start)).clamp(min=0)
    return shared / shared.sum(dim=-1, keepdim=True)


def _groups(channels: int) -> int:
    """Of a group normalisation: 16, or as many as divide the channels."""
    return next(g for g in (16, 8, 4, 2, 1) if channels % g == 0)
