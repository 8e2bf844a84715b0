"""Region codes of many pictures, one after the other: what late interaction searches.

In bytes, a picture's codes are whole numbers −127..127 and one scale for all its regions. One scale a picture, not one
a region, lets the best region of a word be found among whole numbers; it costs little, since the regions of a picture
are of like size. Kept beside it is how far the picture's codes are off at most: that bounds how far a score can be off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

LEVELS = 127
_UP = 1 + 1e-5  # bounds are rounded up, past the rounding of float32


@dataclass(frozen=True)
class RegionCodes:
    """The regions of each picture as rows of one table."""

    vectors: Shaped[Tensor, "row dim"]  # float32, float16, bfloat16 or int8
    starts: Int[Tensor, " picture_and_one"]  # where each picture's rows begin, and where the last one's end
    regions: int | None = None  # of every picture, where all have the same number
    bounds: Float[Tensor, "3 picture"] | None = None  # of bytes: their scale, the largest |ĉ|, the largest |c − ĉ|

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def dim(self) -> int:
        return self.vectors.shape[1]

    @staticmethod
    def of(regions: Float[Tensor, "picture region dim"], mask: Bool[Tensor, "picture region"] | None) -> RegionCodes:
        """From a padded table; without a mask every region is real."""
        counts = torch.full((len(regions),), regions.shape[1]) if mask is None else mask.sum(dim=1).cpu()
        return RegionCodes.rows(regions.flatten(0, 1) if mask is None else regions[mask], counts)

    @staticmethod
    def rows(vectors: Shaped[Tensor, "row dim"], counts: Int[Tensor, " picture"]) -> RegionCodes:
        """From rows and how many of them each picture has."""
        starts = torch.zeros(len(counts) + 1, dtype=torch.int64)
        torch.cumsum(counts.cpu(), dim=0, out=starts[1:])
        same = len(counts) > 0 and bool((counts == counts[0]).all())
        return RegionCodes(vectors, starts.to(vectors.device), int(counts[0]) if same else None)

    @staticmethod
    def join(parts: Sequence[RegionCodes]) -> RegionCodes:
        """One after the other; a single one is itself."""
        if len(parts) == 1:
            return parts[0]
        codes = RegionCodes.rows(torch.cat([p.vectors for p in parts]), torch.cat([p.starts.diff() for p in parts]))
        bounds = [p.bounds for p in parts if p.bounds is not None]
        return replace(codes, bounds=torch.cat(bounds, dim=1)) if bounds else codes

    def part(self, first: int, stop: int) -> RegionCodes:
        """Some pictures in a row; the vectors are a view."""
        if (first, stop) == (0, len(self)):
            return self
        if self.regions is not None:  # nothing to look up: where the table lies on a GPU, that would be to wait
            begin, end = first * self.regions, stop * self.regions
        else:
            begin, end = int(self.starts[first]), int(self.starts[stop])
        bounds = None if self.bounds is None else self.bounds[:, first:stop]
        return RegionCodes(self.vectors[begin:end], self.starts[first : stop + 1] - begin, self.regions, bounds)

    def pick(self, pictures: Int[Tensor, " choice"]) -> RegionCodes:
        """Some pictures in the order given."""
        starts = self.starts[pictures]
        counts = self.starts[pictures + 1] - starts
        ends = counts.cumsum(0)
        row = torch.arange(int(ends[-1]) if len(ends) else 0, device=starts.device)
        shift = (starts - ends + counts).repeat_interleave(counts)
        bounds = None if self.bounds is None else self.bounds[:, pictures]
        return RegionCodes(self.vectors[row + shift], F.pad(ends, (1, 0)), self.regions, bounds)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> RegionCodes:
        return self._each(lambda value: value.to(device, non_blocking=non_blocking))

    def pinned(self) -> RegionCodes:
        """A copy in memory that a GPU can read by itself."""
        return self._each(Tensor.pin_memory)

    def copied(self) -> RegionCodes:
        """A copy, which does not change with what it was made from."""
        return self._each(Tensor.clone)

    def used_by(self, stream: torch.cuda.Stream) -> None:
        """Memory that another stream filled is not given to others before this stream has read it."""
        for value in (self.vectors, self.starts, self.bounds):
            if value is not None:
                value.record_stream(stream)

    def _each(self, change: Callable[[Tensor], Tensor]) -> RegionCodes:
        bounds = None if self.bounds is None else change(self.bounds)
        return RegionCodes(change(self.vectors), change(self.starts), self.regions, bounds)

    def to_kind(self, kind: torch.dtype) -> RegionCodes:
        """In another precision; bytes stay bytes."""
        if kind == torch.int8 or self.vectors.dtype == torch.int8:
            return self.to_bytes()
        return replace(self, vectors=self.vectors.to(kind))

    def to_bytes(self) -> RegionCodes:
        """The same codes as whole numbers, a quarter or a half of the size."""
        if self.vectors.dtype == torch.int8:
            return self
        exact = self.vectors.float()
        owner = torch.repeat_interleave(torch.arange(len(self), device=exact.device), self.starts.diff())
        scale = _most(exact.abs().amax(dim=1), owner, len(self)) / LEVELS
        unit = torch.where(scale > 0, scale, 1.0)[owner, None]
        whole = (exact / unit).round().clamp(-LEVELS, LEVELS)
        again = whole * unit
        reach, error = (_most(v.norm(dim=1), owner, len(self)) * _UP for v in (again, exact - again))
        return RegionCodes(whole.to(torch.int8), self.starts, self.regions, torch.stack([scale, reach, error]))


def _most(values: Float[Tensor, " row"], owner: Int[Tensor, " row"], pictures: int) -> Float[Tensor, " picture"]:
    """The largest value of each picture's rows; 0 where it has none."""
    return values.new_zeros(pictures).scatter_reduce(0, owner, values, "amax")
