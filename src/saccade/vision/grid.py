"""The grid extractor: the regions of a picture are the cells of a backbone's map, or of that map averaged to coarser
grids.

Nothing is proposed and nothing can be missed; a thing may lie across cells, and their number does not depend on the
picture. Several grids in one set (`/7+3+1`) give things of several sizes one region that holds them.

The name says all: `grid`, `grid:efficientnet-lite2`, `grid:efficientnet-lite0@288/7+3+1`,
`grid:dinov2-s@224/7`, `grid:hf:microsoft/resnet-50`; `#-2` after the backbone takes its last map but one, `#1+3` two of
them and `#all` every one, brought to the finest of them by bilinear interpolation and laid side by side:
`grid:dinov2-s:3+6+9+12#all@224/8`. `#all~tf1` places cells as TensorFlow 1 did, by their corners, not their middles.
`~max2` takes the largest of 2 × 2 cells of the map in each channel, before cells are averaged: `grid:world~max2/8`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import PictureBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.vision.backbones.base import load_backbone, stretch
from saccade.vision.extractors import (
    RegionExtractor,
    TrainableBackbone,
    for_inference,
    network_digest,
    padded_boxes,
    padded_regions,
    upload,
)
from saccade.vision.roi import roi_bilinear

MIN_PICTURE_SIDE, MAX_PICTURE_SIDE = 16, 4096  # pixels
ROI_POINTS = 7  # a given box is read at so many points a side


@dataclass(frozen=True)
class GridConfig:
    """Which map, of which pictures, cut how."""

    backbone: str = "efficientnet-lite0"
    size: int | None = None  # pictures are stretched to this square; None: what the backbone was trained on
    levels: tuple[int, ...] = (-1,)  # which of the backbone's maps, fine to coarse; none named: all
    cells: tuple[int, ...] = (0,)  # n: a grid of n × n; 0: the map's own cells
    corners: bool = False  # maps are brought to one size by the corners of cells, as in TensorFlow 1
    pool: int = 1  # the largest of so many cells a side stands for all of them

    def __post_init__(self) -> None:
        if not self.backbone:
            raise SaccadeError("a grid needs the name of a backbone, such as efficientnet-lite0")
        if self.size is not None and not MIN_PICTURE_SIDE <= self.size <= MAX_PICTURE_SIDE:
            raise SaccadeError(
                f"the pictures of a grid must be {MIN_PICTURE_SIDE} to {MAX_PICTURE_SIDE} pixels wide, not {self.size}"
            )
        if not all(-100 < level < 100 for level in self.levels):
            raise SaccadeError(f"the levels of a grid number the backbone's maps, -1 the last: {self.levels} do not")
        if not self.cells or not all(0 <= n <= 64 for n in self.cells):
            raise SaccadeError(f"the cells of a grid must be numbers from 0 to 64, not {list(self.cells)}")

    @property
    def name(self) -> str:
        """What `load_extractor` takes."""
        cells = "+".join(map(str, self.cells))
        levels = ("+".join(map(str, self.levels)) or "all") + ("~tf1" if self.corners else "")
        pooled = f"~max{self.pool}" if self.pool > 1 else ""
        brief = self.backbone
        brief += f"#{levels}" if levels != "-1" else ""
        brief += f"@{self.size}" if self.size is not None else ""
        brief += pooled
        brief += f"/{cells}" if self.cells != (0,) else ""
        if self == GridConfig():
            return "grid"
        if GridConfig(*_parts(brief)) != self:  # of a folder called net@224, say
            return f"grid:{self.backbone}#{levels}@{self.size or 0}{pooled}/{cells}"
        return f"grid:{brief}"


def grid_config(argument: str = "") -> GridConfig:
    """Read `BACKBONE#LEVELS@SIZE~maxN/CELLS`, of which every part may be left out; `@0` is the backbone's own size."""
    return GridConfig(*_parts(argument))


def _parts(argument: str) -> tuple[str, int | None, tuple[int, ...], tuple[int, ...], bool, int]:
    pattern = (
        r"(.*?)(?:#(all|-?[0-9]{1,2}(?:\+-?[0-9]{1,2})*)(~tf1)?)?(?:@([0-9]{1,6}))?"
        r"(?:~max([1-9]))?(?:/([0-9]{1,3}(?:\+[0-9]{1,3})*))?"
    )
    found = re.fullmatch(pattern, argument, re.DOTALL)
    assert found is not None, "every part may be left out, and the first takes anything"
    backbone, levels, corners, size, pool, cells = found.groups()
    numbers = tuple(int(n) for n in (cells or "0").split("+"))
    named = () if levels == "all" else tuple(int(n) for n in (levels or "-1").split("+"))
    return backbone or GridConfig.backbone, int(size or 0) or None, named, numbers, corners is not None, int(pool or 1)


class GridNetwork(TrainableBackbone):
    """Pixels to the vectors of all cells; the gradient reaches the backbone."""

    def __init__(self, config: GridConfig | None = None, pretrained: bool = True) -> None:
        super().__init__()
        self.config = config or GridConfig()
        self.backbone = load_backbone(self.config.backbone, pretrained)
        self.size = self.config.size or self.backbone.size
        self.backbone.check_sides(self.size)
        maps = len(self.backbone.channels)
        for level in self.config.levels:
            if not -maps <= level < maps:
                raise SaccadeError(
                    f'the backbone "{self.config.backbone}" has {maps} maps, #{-maps} to #{maps - 1}; '
                    f"there is no #{level}"
                )
        self.levels = tuple(level % maps for level in self.config.levels) or tuple(range(maps))
        self.name = self.config.name
        self.dim = sum(self.backbone.channels[level] for level in self.levels)

    def train(self, mode: bool = True) -> GridNetwork:
        """Batch normalisation that could not be folded keeps the figures it came with, in training too."""
        super().train(mode)
        for part in self.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.eval()
        return self

    def forward(self, pictures: PictureBatch) -> RegionBatch:
        """Every cell of every grid, row by row, one grid after the other."""
        whole, pool = self.map(pictures.pixels), self.config.pool
        found = functional.max_pool2d(whole, pool, ceil_mode=True) if pool > 1 else whole
        grids = [functional.adaptive_avg_pool2d(found, n) if n else found for n in self.config.cells]
        features = torch.cat([grid.flatten(2) for grid in grids], dim=2).transpose(1, 2)
        rows, columns = found.shape[-2:]
        boxes = torch.cat([cell_boxes(rows, columns, n) for n in self.config.cells])
        if pool > 1:  # the last cells hold less where the map has an odd number of them
            boxes = (
                boxes * boxes.new_tensor([columns, rows] * 2) * pool / boxes.new_tensor(whole.shape[:1:-1] * 2)
            ).clamp(max=1)
        boxes = boxes.to(found.device)
        mask = torch.ones(features.shape[:2], dtype=torch.bool, device=found.device)
        return RegionBatch(features, mask, boxes.expand(len(features), -1, -1), pictures.ids)

    def map(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image dim row column"]:
        """The chosen map of pictures of any size; several side by side, at the size of the finest."""
        maps = self.backbone(self.backbone.normalise(stretch(pixels, self.size)))
        chosen: list[Tensor] = [maps[level] for level in self.levels]
        if len(chosen) == 1:
            return chosen[0]
        rows, columns = max(one.shape[-2:] for one in chosen)
        return torch.cat([resized(one, rows, columns, self.config.corners) for one in chosen], dim=1)

    def as_extractor(self) -> GridExtractor:
        return GridExtractor(self)


class GridExtractor(RegionExtractor):
    """A grid network for use alone: its normalisations are folded, its weights fixed."""

    has_bfloat16 = True
    max_cpu_batch = 8  # more at once is slower there: the widest maps no longer stay in the cache

    def __init__(self, network: GridNetwork) -> None:
        self.name = network.name
        levels: Any = list(network.levels) if len(network.levels) > 1 else network.levels[0]
        settings = [type(network.backbone).__name__, network.size, levels, list(network.config.cells)]
        settings += ["corners"] if network.config.corners else []
        settings += [f"max{network.config.pool}"] if network.config.pool > 1 else []
        self.digest = network_digest(network.backbone, json.dumps(settings))  # before folding, which rounds
        self.dim = network.dim
        self.picture_size = network.size
        network.backbone.fold_normalisation()
        self.network: GridNetwork = for_inference(network)

    @property
    def config(self) -> GridConfig:
        return self.network.config

    def regions(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> RegionBatch:
        """The cells; or, with boxes, the mean of the map inside each."""
        pixels = upload(pictures, self.device)
        if boxes is None:
            cells: RegionBatch = self.network(PictureBatch(pixels))
            return cells
        places, mask = padded_boxes(boxes, self.device)
        maps = self.network.map(pixels).float()
        read = roi_bilinear(maps, places[mask], mask.nonzero()[:, 0], ROI_POINTS).mean(dim=(2, 3))
        vectors = read.new_zeros(*mask.shape, self.dim)
        vectors[mask] = read
        return padded_regions(vectors, places, None, mask)


def trainable_backbone(argument: str = "", pretrained: bool = True) -> GridNetwork:
    """The network of `grid:ARGUMENT`, ready to be trained further, its normalisations folded."""
    network = GridNetwork(grid_config(argument), pretrained)
    network.backbone.fold_normalisation()
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def open_extractor(argument: str = "") -> GridExtractor:
    return GridExtractor(GridNetwork(grid_config(argument)))


def resized(
    maps: Float[Tensor, "image dim row column"], rows: int, columns: int, corners: bool = False
) -> Float[Tensor, "image dim rows columns"]:
    """A map with more cells, or fewer, by bilinear interpolation. Cells stand for their middles; with `corners` for
    their upper left corners, and the last is repeated beyond its own: source = target × old / new."""
    if maps.shape[-2:] == (rows, columns):
        return maps
    if not corners:
        return functional.interpolate(maps, (rows, columns), mode="bilinear", align_corners=False)
    for axis, size in ((2, rows), (3, columns)):
        old = maps.shape[axis]
        place = torch.arange(size, device=maps.device, dtype=maps.dtype) * old / size
        first = place.floor().long()
        share = (place - first).view(-1, *[1] * (3 - axis))
        below, above = (maps.index_select(axis, n.clamp(max=old - 1)) for n in (first, first + 1))
        maps = below + (above - below) * share
    return maps


def cell_boxes(rows: int, columns: int, cells: int = 0) -> Float[Tensor, "cell 4"]:
    """Where the cells of a grid lie, row by row. Adaptive pooling of 7 cells to 3 makes windows that overlap."""

    def windows(side: int) -> list[tuple[float, float]]:
        n = cells or side
        return [(i * side // n / side, -(-(i + 1) * side // n) / side) for i in range(n)]

    return torch.tensor([(x1, y1, x2, y2) for y1, y2 in windows(rows) for x1, x2 in windows(columns)])
