"""Losses the papers share."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Negatives = Literal["hardest", "all"]


def triplet_loss(
    similarity: Float[Tensor, "image text"],
    margin: float = 0.2,
    negatives: Negatives = "hardest",
    positive: Bool[Tensor, "image text"] | None = None,
    owner: Int[Tensor, " text"] | None = None,
) -> Float[Tensor, ""]:
    """Hinge loss over matched pairs, both ways, summed over the batch as the official code does.

        all:     Σ_{i≠j} [m + S_ij − S_ii]₊ + [m + S_ij − S_jj]₊
        hardest: Σ_i max_{j≠i} [m + S_ij − S_ii]₊ + Σ_j max_{i≠j} [m + S_ij − S_jj]₊

    The pairs are the diagonal; or, with `owner`, text t and picture `owner[t]`, any number of texts a picture.
    `positive` marks further pairs that match (two captions of one picture) and so are no negatives.
    """
    images, texts = similarity.shape
    if owner is None:
        owner = torch.arange(texts, device=similarity.device)
    own = similarity.gather(0, owner[None])[0]  # of each pair
    match = torch.arange(images, device=similarity.device)[:, None] == owner
    if positive is not None:
        match = match | positive
    if negatives == "hardest":
        wrong = similarity.masked_fill(match, -torch.inf)
        hinges = (margin + wrong.amax(dim=1)[owner] - own, margin + wrong.amax(dim=0) - own)
        return torch.stack(hinges).clamp(min=0).sum()
    caption_cost = (margin + similarity[owner] - own[:, None]).clamp(min=0).masked_fill(match[owner], 0)
    image_cost = (margin + similarity - own).clamp(min=0).masked_fill(match, 0)
    return caption_cost.sum() + image_cost.sum()
