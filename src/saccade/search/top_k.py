"""The best k of many items for each query, tile by tile: the whole table of scores is never kept.

Items of equal score are ranked by their index, so that a ranking of given scores does not depend on how the items were
cut into tiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 64  # items of which only the best is looked at first
_LAST = (1 << 32) - 1


@dataclass(frozen=True)
class Ranking:
    """The best items of each query, best first. Where there were fewer than k, a row is shorter."""

    scores: Float[Tensor, "query rank"]
    indices: Int[Tensor, "query rank"]

    def join(self, other: Ranking, k: int) -> Ranking:
        """The best k of both."""
        scores = torch.cat([self.scores, other.scores], dim=1)
        return ranked(scores, torch.cat([self.indices, other.indices], dim=1), k)


def top_k(
    scores: Float[Tensor, "query item"],
    k: int,
    first: int = 0,
    peaks: Float[Tensor, "query block"] | None = None,
    block: int = _BLOCK,
) -> Ranking:
    """The best k items of a table whose items are numbered from `first`; scores are compared as float32.

    The k best items lie in the k blocks whose best items are best: only those are ranked. `peaks` are the best scores
    of the blocks, where they are known.
    """
    scores = scores.float()
    queries, items = scores.shape
    blocks = -(-items // block)
    if blocks > 2 * k:
        if peaks is None:
            padded = F.pad(scores, (0, blocks * block - items), value=-torch.inf) if items % block else scores
            peaks = padded.view(queries, blocks, block).amax(dim=2)
        numbers = torch.arange(blocks, device=scores.device).expand(queries, -1)
        chosen = ranked(peaks, numbers, k).indices  # [query, k]
        places = (chosen[:, :, None] * block + torch.arange(block, device=scores.device)).flatten(1)
        inside = places < items
        values = scores.gather(1, places.clamp(max=items - 1)).masked_fill(~inside, -torch.inf)
        return ranked(values, places + first, k, inside)
    places = torch.arange(first, first + items, device=scores.device)
    return ranked(scores, places.expand(queries, -1), k)


def streamed_top_k(tiles: Iterable[tuple[int, Float[Tensor, "query item"]]], k: int) -> Ranking | None:
    """The best k over tiles of scores, each given with the number of its first item; None if there was no tile.

    The scores may come from anything: MaxSim, a matcher's `similarity`, a product of pooled vectors.
    """
    found: Ranking | None = None
    for first, scores in tiles:
        best = top_k(scores, k, first)
        found = best if found is None else found.join(best, k)
    return found


def ranked(
    scores: Float[Tensor, "query item"],
    indices: Int[Tensor, "query item"],
    k: int,
    real: Bool[Tensor, "query item"] | None = None,
) -> Ranking:
    """The best k by score, then by index: both in one whole number of 64 bits. What is not `real` comes last."""
    if real is not None:
        scores, indices = scores.masked_fill(~real, -torch.inf), indices.masked_fill(~real, _LAST)
    bits = (scores + 0.0).view(torch.int32)  # + 0: there is only one zero
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # whole numbers in the order of the floats
    keys, places = ((rising.long() << 32) | (_LAST - indices)).topk(min(k, scores.shape[1]), dim=1)
    return Ranking(scores.gather(1, places), _LAST - (keys & _LAST))
