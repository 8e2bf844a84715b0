"""Bytes to the numbers a network was trained on: each colour less its mean, divided by its spread."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of red, green and blue in 0..1
IMAGENET_STD = (0.229, 0.224, 0.225)


def normalise_by(
    pixels: UInt8[Tensor, "image height width 3"],
    mean: Sequence[float] | Tensor = IMAGENET_MEAN,
    std: Sequence[float] | Tensor = IMAGENET_STD,
) -> Float[Tensor, "image 3 height width"]:
    """The permutation is a view: the memory stays channels-last, which convolutions like best."""
    centre = torch.as_tensor(mean, dtype=torch.float32, device=pixels.device) * 255
    spread = torch.as_tensor(std, dtype=torch.float32, device=pixels.device) * 255
    return ((pixels.float() - centre) / spread).permute(0, 3, 1, 2)
