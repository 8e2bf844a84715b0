"""What the MaxSim kernels need to know of a batch of queries: made once for a search, whatever the number of tiles.

How many words each query has is known on the host, so that nothing has to be asked of a GPU: one small table goes there
and one kernel does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

if TYPE_CHECKING:
    from saccade.ops.maxsim import Queries


@dataclass(frozen=True)
class Group:
    """Queries of one launch: as many as registers hold words of."""

    first: int  # query
    stop: int
    row: int  # of the tables of words
    parts: tuple[int, int, int]  # blocks of words, padding included

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + sum(self.parts))


@dataclass(frozen=True)
class Asked:
    """The words of all queries on a device, each launch's padded to blocks that Triton knows."""

    lengths: tuple[int, ...]
    groups: tuple[Group, ...]
    table: Int[Tensor, "5 query"]  # see `words_kernel`
    halves: Shaped[Tensor, "row dim"]  # in half precision; empty if not wanted
    wholes: Shaped[Tensor, "row dim"]  # in bytes; empty if not wanted
    scale: Float[Tensor, " row"]  # of bytes
    owner: Int[Tensor, " row"]
    off: Float[Tensor, " query"]  # Σ|q − q̂| of bytes
    size: Float[Tensor, " query"]  # Σ|q|


def ask(queries: Queries, half: torch.dtype | None, integer: bool) -> Asked:
    """Words in this precision, in bytes, or both."""
    from saccade.ops.kernels.maxsim import MOST_DIM
    from saccade.ops.kernels.maxsim_wide import CHUNK
    from saccade.ops.kernels.maxsim_words import words_kernel

    device, dim = queries.words.device, queries.words.shape[1]
    groups, table = _groups(queries.lengths)
    rows = sum(sum(group.parts) for group in groups)
    half_wide, whole_wide = (
        -(-dim // CHUNK) * CHUNK if dim > MOST_DIM else max(least, power_of_two(dim)) for least in (16, 32)
    )
    place = torch.from_numpy(table).to(device, non_blocking=True)
    halves = torch.empty(rows if half else 0, half_wide, dtype=half or torch.float16, device=device)
    wholes = torch.empty(rows if integer else 0, whole_wide, dtype=torch.int8, device=device)
    scale = torch.empty(rows, device=device)
    owner = torch.empty(rows, dtype=torch.int32, device=device)
    off, size = torch.empty(2, len(queries), device=device).unbind()
    power = power_of_two(max(half_wide, whole_wide))
    words_kernel[(len(queries),)](
        queries.words.float().contiguous(),
        place,
        halves,
        wholes,
        scale,
        owner,
        off,
        size,
        dim,
        len(queries),
        HALF=half_wide if half else 0,
        WHOLE=whole_wide if integer else 0,
        POWER=power,
        ROWS=max(2, 4096 // power),
        num_warps=4,
    )
    return Asked(queries.lengths, groups, place, halves, wholes, scale, owner, off, size)


def _groups(lengths: tuple[int, ...]) -> tuple[tuple[Group, ...], np.ndarray]:
    from saccade.ops.kernels.maxsim import MOST_WORDS, word_blocks

    groups, row, first = [], 0, 0
    table = np.zeros((5, len(lengths)), dtype=np.int32)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    while first < len(lengths):
        stop = first + 1
        while stop < len(lengths) and begins[stop + 1] - begins[first] <= MOST_WORDS:
            stop += 1
        parts = word_blocks(max(1, int(begins[stop] - begins[first])))
        table[0, first:stop] = begins[first:stop]
        table[1, first:stop] = table[3, first:stop] = lengths[first:stop]
        table[2, first:stop] = row + begins[first:stop] - begins[first]
        table[4, first:stop] = np.arange(stop - first)
        row += sum(parts)
        table[3, stop - 1] = row - table[2, stop - 1]
        groups.append(Group(first, stop, row - sum(parts), parts))
        first = stop
    return tuple(groups), table


def power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
