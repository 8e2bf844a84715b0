"""A whole split in memory, on the training device if wanted: for data sets that fit, a batch is then one selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch

from saccade.batch import RegionBatch, stack
from saccade.data.records import CaptionedImages, RegionSource
from saccade.data.registry import DataConfig, open_split

BATCH = 256  # pictures read at once


class RegionsInMemory:
    """A region source read once; `device` says where it is kept."""

    def __init__(self, source: RegionSource, device: torch.device | str = "cpu") -> None:
        self.ids, self.dim = tuple(source.ids), source.dim
        parts = [range(i, min(i + BATCH, len(source))) for i in range(0, len(source), BATCH)]
        whole = stack([source.batch(list(part)) for part in parts])
        self.counts = whole.mask.sum(dim=1)  # on the CPU: to ask a GPU would be to wait for it
        self.all = whole.to(device)

    def __len__(self) -> int:
        return len(self.all)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        """The pictures at `indices`, without the padding that the longest of them does not need."""
        chosen = self.all.select(indices)
        longest = int(self.counts[list(indices)].max()) if len(chosen) else 0
        scores = None if chosen.scores is None else chosen.scores[:, :longest]
        features, boxes = chosen.features[:, :longest], chosen.boxes[:, :longest]
        return replace(chosen, features=features, boxes=boxes, mask=chosen.mask[:, :longest], scores=scores)


def held_in_memory(data: CaptionedImages, device: torch.device | str = "cpu") -> CaptionedImages:
    """The split with its regions read once and kept; a split of pixels stays as it is."""
    if not len(data.images) or not hasattr(data.images, "dim"):
        return data
    return replace(data, images=RegionsInMemory(data.regions, device))


@lru_cache(maxsize=4)
def open_in_memory(config: DataConfig, split: str, device: str = "cpu") -> CaptionedImages:
    """`open_split`, held in memory; runs that follow each other in one process find it there."""
    return held_in_memory(open_split(config, split), device)
