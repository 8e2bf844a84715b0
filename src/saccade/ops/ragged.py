"""Items of several lengths: sorted, and cut into groups of which little is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Cut = tuple[slice, int]  # some items in the order of length, and the length of the longest


def longest_first(mask: Bool[Tensor, "item part"]) -> tuple[Int[Tensor, " item"], list[int]]:
    """Their order by length, and the lengths in that order; a length reaches to the last real part."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    reach = mask * places
    lengths, order = (reach.amax(dim=1) if mask.shape[1] else reach.sum(dim=1)).sort(descending=True, stable=True)
    return order, lengths.tolist()


def cut(
    lengths: Sequence[int],
    most: Callable[[int], int],
    least: Callable[[int], int] | None = None,
    alike: float = 0.0,
    multiple: int = 1,
) -> Iterator[Cut]:
    """Groups of items that come longest first; those whose longest has length n have at most `most(n)` items.

    A group ends where items are shorter than a share `alike` of its longest; with more than `least(n)` items it ends
    wherever shorter ones begin. If not ended so, it has a `multiple` of items where it can.
    """
    start = 0
    while start < len(lengths):
        longest, stop, early = max(1, lengths[start]), start + 1, False
        limit = start + max(1, most(longest))
        enough = start + (least(longest) if least is not None else len(lengths))
        while stop < min(limit, len(lengths)) and lengths[stop] >= alike * longest:
            if early := stop > enough and lengths[stop] < lengths[stop - 1]:
                break
            stop += 1
        if stop < len(lengths) and not early and stop - start > multiple:
            stop -= (stop - start) % multiple
        yield slice(start, stop), longest
        start = stop


def neighbours(sizes: Sequence[int], limit: int) -> Iterator[tuple[slice, slice]]:
    """Neighbouring items of at most `limit` rows together, though at least one: the items and their rows."""
    begin = row = rows = 0
    for item, size in enumerate(sizes):
        if rows and rows + size > limit:
            yield slice(begin, item), slice(row, row + rows)
            begin, row, rows = item, row + rows, 0
        rows += size
    if begin < len(sizes):
        yield slice(begin, len(sizes)), slice(row, row + rows)
