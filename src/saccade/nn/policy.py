"""Learning from rewards: what a word earned, and what it can expect to earn from here on."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def discounted(rewards: Float[Tensor, "row step"], discount: float) -> Float[Tensor, "row step"]:
    """R_t = Σ_{s ≥ t} γ^(s−t) r_s."""
    steps = torch.arange(rewards.shape[1], device=rewards.device, dtype=rewards.dtype)
    later = steps[:, None] - steps  # [s, t]
    shares = (discount ** later.clamp(min=0)).masked_fill(later < 0, 0)
    return (rewards[:, :, None] * shares).sum(dim=1)  # not as a product of matrices: mixed precision would round it


def first_mentions(
    words: Int[Tensor, "row step"],
    mask: Bool[Tensor, "row step"],
    concepts: Int[Tensor, "row concept"],
    scores: Float[Tensor, "row concept"],
) -> Float[Tensor, "row step"]:
    """Each concept's score where it is first named, in the part of the sentence that counts; padding has no score."""
    named = (words[:, :, None] == concepts[:, None]) & mask[:, :, None]
    first = named & (named.cumsum(dim=1) == 1)
    return (first * scores[:, None]).sum(dim=2)
