"""Augmentation: pictures cropped, mirrored and recoloured, with their boxes where they have any.

On the device, a batch at once. For captions a window keeps about the picture's shape, and every picture gets one; for
detectors half of the pictures are cropped, as freely in width as in height, and their boxes follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.nn import functional

from saccade.core.errors import SaccadeError
from saccade.vision.boxes import area, clip

MIN_BOX_LEFT = 0.4  # of a box's area after a crop, or the thing is no longer there


@dataclass(frozen=True)
class AugmentConfig:
    """How far a picture may change; 1, 0 and 0 leave it as it is."""

    crop: float = 0.6  # the smallest share of the picture's area that is kept
    mirror: float = 0.5  # the chance of being turned left to right (captions seldom say which is which)
    colour: float = 0.3  # how far brightness, contrast and saturation go up or down

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise SaccadeError(f"augment.crop must be more than 0 and at most 1, not {self.crop}")
        if not 0 <= self.mirror <= 1 or not 0 <= self.colour < 1:
            raise SaccadeError(f"augment.mirror and augment.colour lie in 0..1, not {self.mirror} and {self.colour}")


def augment(
    pixels: UInt8[Tensor, "image height width 3"], size: int, config: AugmentConfig
) -> UInt8[Tensor, "image size size 3"]:
    """Cut, mirror and stretch each picture to `size` × `size` in one bilinear reading, then change its colours."""
    pictures = pixels.permute(0, 3, 1, 2).float()
    grid = functional.affine_grid(_windows(len(pixels), config, pixels.device), [len(pixels), 3, size, size], False)
    read = functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
    if config.colour:
        read = _recolour(read, config.colour)
    return read.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def _windows(count: int, config: AugmentConfig, device: torch.device) -> Float[Tensor, "image 2 3"]:
    """An affine map for each picture: a window of random area, shape (up to 1.2 : 1) and place, perhaps mirrored."""
    share = torch.empty(count, device=device).uniform_(config.crop, 1.0).sqrt()
    room = (-share.log()).clamp(max=0.1)  # a window of nearly all the picture has its shape: none sticks out
    shape = (torch.empty(count, device=device).uniform_(-1.0, 1.0) * room).exp()
    wide, high = (share * shape).clamp(max=1), (share / shape).clamp(max=1)
    across, down = ((1 - side) * (torch.rand(count, device=device) * 2 - 1) for side in (wide, high))
    mirrored = torch.where(torch.rand(count, device=device) < config.mirror, -1.0, 1.0)
    nothing = torch.zeros_like(wide)
    return torch.stack([wide * mirrored, nothing, across, nothing, high, down], dim=1).view(count, 2, 3)


def _recolour(pictures: Float[Tensor, "image 3 row column"], amount: float) -> Float[Tensor, "image 3 row column"]:
    def around_one() -> Tensor:
        return torch.empty(len(pictures), 1, 1, 1, device=pictures.device).uniform_(1 - amount, 1 + amount)

    grey = pictures.mean(dim=1, keepdim=True)
    pictures = grey + (pictures - grey) * around_one()  # saturation
    mean = pictures.mean(dim=(1, 2, 3), keepdim=True)
    return (pictures - mean) * around_one() + mean * around_one()  # contrast, brightness


class AugmentedBoxes(NamedTuple):
    pixels: UInt8[Tensor, "image size size 3"]
    boxes: Float[Tensor, "image thing 4"]
    real: Bool[Tensor, "image thing"]
    mirrored: Bool[Tensor, " image"]


def augment_with_boxes(
    pixels: UInt8[Tensor, "image height width 3"],
    boxes: Float[Tensor, "image thing 4"],
    real: Bool[Tensor, "image thing"],
    size: int,
    crop: float,
    colour: float,
) -> AugmentedBoxes:
    """Mirror half of the pictures, crop half of them to sides of at least `crop`, vary light and colour.

    All come at `size` × `size`; a box of which too little is left is no longer `real`.
    """
    images, device = len(pixels), pixels.device
    chance = torch.rand(5, images, device=device)
    side = torch.where(chance[:1] < 0.5, crop + (1 - crop) * chance[1:3], torch.ones_like(chance[1:3])).T  # [image, 2]
    low = (1 - side) * chance[3:5].T
    mirrored = torch.rand(images, device=device) < 0.5

    steps = (torch.arange(size, device=device, dtype=torch.float32) + 0.5) / size
    x = low[:, :1] + side[:, :1] * torch.where(mirrored[:, None], 1 - steps, steps)
    y = low[:, 1:] + side[:, 1:] * steps
    shape = (images, size, size)
    points = torch.stack([x[:, None, :].expand(shape), y[:, :, None].expand(shape)], dim=-1) * 2 - 1
    read = functional.grid_sample(
        pixels.permute(0, 3, 1, 2).float(), points, padding_mode="border", align_corners=False
    )
    gain, contrast, saturation = 1 + (torch.rand(3, images, 1, 1, 1, device=device) * 2 - 1) * colour
    grey = read.mean(dim=1, keepdim=True)
    read = grey + (read - grey) * saturation
    middle = read.mean(dim=(1, 2, 3), keepdim=True)
    read = (middle + (read - middle) * contrast) * gain

    moved = (boxes - low.repeat(1, 2)[:, None]) / side.repeat(1, 2)[:, None]
    moved = torch.where(mirrored[:, None, None], mirror_boxes(moved), moved)
    inside = clip(moved)
    kept = real & (area(inside) >= MIN_BOX_LEFT * area(moved))
    return AugmentedBoxes(read.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1), inside, kept, mirrored)


def mirror_boxes(boxes: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 4"]:
    """The boxes in pictures that are turned left to right."""
    x1, y1, x2, y2 = boxes.unbind(dim=-1)
    return torch.stack([1 - x2, y1, 1 - x1, y2], dim=-1)
