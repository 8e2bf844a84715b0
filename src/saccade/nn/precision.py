"""Where mixed precision ends: lengths, softmaxes, gates and scores are computed in full."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(vectors: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
    """Codes leave the mixed-precision part here: lengths and softmaxes in bfloat16 would be off by a percent."""
    return vectors.float() if vectors.dtype in (torch.bfloat16, torch.float16) else vectors


def full_precision(like: Tensor) -> torch.autocast:
    """A block out of mixed precision, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False)
