"""MaxSim from its definition: one pair, one word at a time, in float64."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def maxsim_reference(
    words: Float[Tensor, "query word dim"],
    word_mask: Bool[Tensor, "query word"],
    regions: Float[Tensor, "picture region dim"],
    region_mask: Bool[Tensor, "picture region"],
) -> Float[Tensor, "query picture"]:
    """Slow and plain: what `ops.maxsim.maxsim` must equal."""
    table = torch.zeros(len(words), len(regions), dtype=torch.float64)
    for query, (asking, real_words) in enumerate(zip(words.double().cpu(), word_mask.cpu(), strict=True)):
        for picture, (shown, real_regions) in enumerate(zip(regions.double().cpu(), region_mask.cpu(), strict=True)):
            if not bool(real_regions.any()):
                table[query, picture] = -torch.inf
                continue
            for word in asking[real_words]:
                table[query, picture] += (shown[real_regions] @ word).max()
    return table
