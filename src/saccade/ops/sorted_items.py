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

    def rows(
        self, cuts: Sequence[Cut], by_part: bool = False, spare: int = 0
    ) -> tuple[Float[Tensor, "row dim"], list[Bool[Tensor, "one other"]]]:
        """Vectors of some groups one below the other, all first parts first if `by_part`, with zeros for padding and
        `spare` rows of zeros behind; and where they are real."""
        vectors, mask, parts = self.vectors.flatten(0, 1), self.mask.flatten(), self.mask.shape[1]
        places = [self.order[place, None] * parts + torch.arange(longest) for place, longest in cuts]
        if by_part:
            places = [place.T for place in places]
        there, count = [mask[place] for place in places], sum(place.numel() for place in places)
        whole = all(bool(real.all()) for real in there)
        if whole and self.sorted and not by_part and not spare and cuts[0][1] == parts:
            return vectors[cuts[0][0].start * parts :][:count], there  # they lie like that
        found = vectors.new_empty(count + spare, vectors.shape[-1])
        torch.index_select(vectors, 0, torch.cat([place.flatten() for place in places]), out=found[:count])
        found[count:] = 0.0
        if not whole:
            absent = torch.cat([real.flatten() for real in there]).logical_not_().nonzero()[:, 0]
            found.index_fill_(0, absent, 0.0)
        return found, there


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
