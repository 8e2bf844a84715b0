"""Losses the papers share."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Negatives = Literal["hardest", "all"]


def triplet_loss(
    similarity: Float[Tensor, "pair pair"],
    margin: float = 0.2,
    negatives: Negatives = "hardest",
    positive: Bool[Tensor, "pair pair"] | None = None,
) -> Float[Tensor, ""]:
    """Hinge loss over matched pairs (the diagonal), both ways, summed over the batch as the official code does.

        all:     Σ_{i≠j} [m + S_ij − S_ii]₊ + [m + S_ij − S_jj]₊
        hardest: Σ_i max_{j≠i} [m + S_ij − S_ii]₊ + Σ_j max_{i≠j} [m + S_ij − S_jj]₊

    `positive` marks further pairs that match (two captions of one picture) and so are no negatives.
    """
    own = similarity.diagonal()
    match = torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
    if positive is not None:
        match = match | positive
    caption_cost = (margin + similarity - own[:, None]).clamp(min=0).masked_fill(match, 0)  # picture i, wrong caption
    image_cost = (margin + similarity - own[None, :]).clamp(min=0).masked_fill(match, 0)  # caption j, wrong picture
    if negatives == "hardest":
        return caption_cost.amax(dim=1).sum() + image_cost.amax(dim=0).sum()
    return caption_cost.sum() + image_cost.sum()
