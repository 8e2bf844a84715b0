"""Items sorted by length and cut into groups, so that little of what a CPU multiplies is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops.native.attention import SAFE

if TYPE_CHECKING:
    from saccade.ops.pairwise import AttentionForm


Cut = tuple[slice, int]  # some items in the order of length, and the length of the longest


@dataclass(frozen=True)
class SortedItems:
    """One side, and its items sorted by length: the longest first."""

    vectors: Float[Tensor, "item part dim"]
    mask: Bool[Tensor, "item part"]
    order: Int[Tensor, " item"]
    cuts: list[Cut]
    sorted: bool  # their own order is that of length: a slice takes them without a copy

    def take(self, cut: Cut) -> tuple[Float[Tensor, "some part dim"], Bool[Tensor, "some part"], bool]:
        """Vectors with zeros for padding, where they are real, and whether all are."""
        place, longest = cut
        chosen = place if self.sorted else self.order[place]
        vectors, there = self.vectors[chosen, :longest], self.mask[chosen, :longest]
        whole = bool(there.all())
        if not whole:
            fill = vectors.masked_fill if self.sorted else vectors.masked_fill_  # what an index took is a copy
            vectors = fill(~there[..., None], 0.0)
        return vectors, there, whole

    def places(self, cut: Cut) -> Int[Tensor, "some part"]:
        """Where the vectors of some items are among all of all items; negative where they are padding."""
        chosen, longest = self.order[cut[0]], cut[1]
        place = chosen[:, None] * self.mask.shape[1] + torch.arange(longest)
        return place.masked_fill_(~self.mask[chosen, :longest], -1)


def sorted_items(vectors: Tensor, mask: Tensor, limit: int, full: float, together: int = 1) -> SortedItems:
    """In groups of at most `limit` vectors; from a share `full` of that on, a group may end early. Where only the limit
    ends it, it has a multiple of `together` items if it can."""
    places = torch.arange(1, mask.shape[1] + 1)
    lengths, order = (mask * places).amax(dim=1).sort(descending=True, stable=True)  # the last real part counts
    alike = bool((lengths[:1] == lengths[-1:]).all())
    return SortedItems(vectors.contiguous(), mask, order, list(_cuts(lengths.tolist(), limit, full, together)), alike)


def _cuts(lengths: Sequence[int], limit: int, full: float, together: int) -> Iterator[Cut]:
    """Groups of at most `limit` vectors (or one item); a large one ends where shorter items begin: less padding."""
    start = 0
    while start < len(lengths):
        longest, stop = max(1, lengths[start]), start + 1
        while stop < len(lengths) and (stop + 1 - start) * longest <= limit:
            if lengths[stop] < lengths[stop - 1] and (stop - start) * longest > limit * full:
                break
            stop += 1
        else:
            if stop < len(lengths):
                stop -= (stop - start) % together if stop - start > together else 0
        yield slice(start, stop), longest
        start = stop


def pool_cosines(
    match: Float[Tensor, "other query item"], absent: Bool[Tensor, "query item"] | None, form: AttentionForm
) -> Float[Tensor, "other item"]:
    """As `pool` does, in place: cosines are within ±1."""
    if form.pool == "max":
        return (match if absent is None else match.masked_fill_(absent, -torch.inf)).amax(dim=1)
    if form.pool == "logsumexp":
        sharp = match.mul_(form.pool_sharpness)
        if abs(form.pool_sharpness) > SAFE:
            sharp = sharp if absent is None else sharp.masked_fill_(absent, -torch.inf)
            return torch.logsumexp(sharp, dim=1).div_(form.pool_sharpness)
        match = sharp.exp_()
    total = (match if absent is None else match.masked_fill_(absent, 0.0)).sum(dim=1)
    if form.pool == "logsumexp":
        return total.log_().div_(form.pool_sharpness)
    if form.pool == "mean":
        total.div_(match.shape[1] if absent is None else (~absent).sum(dim=0).clamp(min=1))
    return total
