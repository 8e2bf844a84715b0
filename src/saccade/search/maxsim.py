"""MaxSim, or late interaction: every word of a query takes its best region, and the words are summed.

    S(query, picture) = Σ_words max_regions word · region

for every query with every picture. On a GPU, codes of half precision or of bytes go through one kernel that reads each
of them once (`search/triton/maxsim.py`); everything else goes through tiles of matrix products that stay under a budget
of bytes. A picture without regions scores −∞; a query without words scores 0 with all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops import gpu
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import DEFAULT_BUDGET, name_of
from saccade.ops.tiling import neighbours
from saccade.search import triton
from saccade.search.region_codes import LEVELS, RegionCodes

_CPU_TILE_BYTES = 6 << 20  # bytes of scores of a tile: they should stay in the cache
MAX_FLOAT32_DIM = (1 << 24) // LEVELS**2  # dimensions whose byte products a float32 can sum without rounding
_UP = 1 + 1e-5


@dataclass(frozen=True)
class QueryWords:
    """The words of several queries, one after the other."""

    words: Float[Tensor, "word dim"]
    lengths: tuple[int, ...]  # how many of them each query has: known without words a GPU

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def owner(self) -> Int[Tensor, " word"]:
        """Whose word it is."""
        owner = np.repeat(np.arange(len(self)), self.lengths)
        return torch.from_numpy(owner).to(self.words.device, non_blocking=True)

    @staticmethod
    def of(words: Float[Tensor, "query word dim"], mask: Bool[Tensor, "query word"] | None = None) -> QueryWords:
        """From a padded table; without a mask every word is real."""
        if mask is None:
            return QueryWords(words.flatten(0, 1), (words.shape[1],) * len(words))
        return QueryWords(words[mask], tuple(mask.sum(dim=1).tolist()))

    def to(self, target: torch.device | torch.dtype | str) -> QueryWords:
        return QueryWords(self.words.to(target), self.lengths)

    def members(self) -> Bool[Tensor, "word query"]:
        return self.owner[:, None] == torch.arange(len(self), device=self.words.device)

    def to_bytes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Words as whole numbers, their scales, and of each query Σ|q − q̂| and Σ|q|."""
        words = self.words.float()
        scale = words.abs().amax(dim=1) / LEVELS
        unit = torch.where(scale > 0, scale, 1.0)[:, None]
        whole = (words / unit).round()
        members = self.members().to(words.dtype)
        size = words.norm(dim=1) @ members * _UP
        off = (words - whole * unit).norm(dim=1) @ members + 1e-5 * size  # and what float32 rounds off
        return whole.to(torch.int8), scale, off, size


def maxsim(
    words: Float[Tensor, "query word dim"],
    word_mask: Bool[Tensor, "query word"],
    regions: Float[Tensor, "picture region dim"],
    region_mask: Bool[Tensor, "picture region"],
    budget: int = DEFAULT_BUDGET,
) -> Float[Tensor, "query picture"]:
    """MaxSim of padded tables; temporaries take at most about `budget` bytes."""
    mask = None if bool(region_mask.all()) else region_mask
    return maxsim_codes(QueryWords.of(words, word_mask), RegionCodes.of(regions, mask), budget)


@dataclass(frozen=True)
class MaxSimProblem:
    """Packed queries with packed codes; see `maxsim_codes`."""

    queries: QueryWords
    codes: RegionCodes
    budget: int = DEFAULT_BUDGET
    bound: bool = False

    def describe(self) -> str:
        return f"{name_of(self.codes.vectors.dtype)}, {self.codes.dim} dimensions"


def maxsim_codes(
    queries: QueryWords, codes: RegionCodes, budget: int = DEFAULT_BUDGET, bound: bool = False
) -> Float[Tensor, "query picture"]:
    """MaxSim of packed queries with packed codes, in float32 (float64 if the codes are).

    With `bound`, codes in bytes give not their score but the most that the exact codes could score:
    Σ max (q̂ · ĉ) + max|ĉ| Σ|q − q̂| + max|c − ĉ| Σ|q|, after Cauchy and Schwarz.
    """
    return MAXSIM(MaxSimProblem(queries, codes, budget, bound))


def by_triton(queries: QueryWords, codes: RegionCodes) -> bool:
    """Whether Triton's kernels score these: then lists can pass from one to the next (`search/triton/lists.py`)."""
    return MAXSIM.chosen(MaxSimProblem(queries, codes)).name == "triton"


def can_choose(queries: QueryWords, codes: RegionCodes) -> bool:
    """Whether `launch_chosen` can score these: codes of half precision, and each query's words in shared memory."""
    if not by_triton(queries, codes) or codes.vectors.dtype == torch.int8:
        return False
    words, wide = (max(16, triton.power_of_two(size)) for size in (max(queries.lengths), codes.dim))
    return words * wide * codes.vectors.element_size() <= triton.WORD_BYTES


def _suits_triton(problem: MaxSimProblem) -> str | None:
    queries, codes = problem.queries, problem.codes
    if (reason := gpu.refuses(codes.vectors.device)) is not None:
        return reason
    if codes.vectors.dtype not in triton.DTYPES:
        return "the codes are neither of 16 bits nor bytes"
    if not len(codes.vectors) or not len(queries.words):
        return "there is nothing to compare"
    if codes.dim > triton.MAX_DIM or max(queries.lengths) > triton.MAX_WORDS:
        return f"it holds {triton.MAX_DIM:,} dimensions and {triton.MAX_WORDS} words of a query"
    return None if codes.vectors.is_contiguous() else "the codes are not contiguous"


def _run_triton(problem: MaxSimProblem) -> Tensor:
    from saccade.search.triton.launch import launch

    with gpu.on_gpu_of(problem.codes.vectors):
        return launch(problem.queries, problem.codes, problem.bound)[0]


@cache
def bytes_multiply_exactly() -> bool:
    """Whether this CPU multiplies matrices of bytes without loss.

    Without instructions made for it, the library behind PyTorch adds two products in 16 bits, which overflow.
    """
    most = torch.full((64, 64), LEVELS, dtype=torch.int8)
    return bool((torch._int_mm(most, most) == 64 * LEVELS**2).all())


def _run_torch(problem: MaxSimProblem) -> Float[Tensor, "query picture"]:
    """Tiles of matrix products."""
    queries, codes, budget = problem.queries, problem.codes, problem.budget
    integer = codes.vectors.dtype == torch.int8
    kind = torch.float64 if codes.vectors.dtype == torch.float64 else torch.float32
    count = len(queries.words)
    scores = torch.zeros(len(codes), len(queries), dtype=kind, device=codes.vectors.device)
    empty = codes.starts.diff() == 0
    if count == 0 or not len(codes.vectors):
        return scores.masked_fill_(empty[:, None], -torch.inf).T
    room = min(budget // 2, _CPU_TILE_BYTES) if codes.vectors.device.type == "cpu" else budget // 2
    words = queries.words.to(kind)
    if integer:
        words, word_scale, off, size = queries.to_bytes()
    words = words.T.contiguous()
    members = queries.members().to(kind)
    tiles = _tiles(codes, max(1, room // (4 * (count + codes.dim))))
    most = max(rows.stop - rows.start for _, rows in tiles)  # buffers are used again: new memory is slow
    by_bytes = integer and (codes.vectors.device.type != "cpu" or bytes_multiply_exactly())
    exact_kind = torch.float64 if integer and codes.dim > MAX_FLOAT32_DIM else kind  # holds any sum of byte products
    table = torch.empty(most, count, dtype=torch.int32 if by_bytes else exact_kind, device=words.device)
    words = words if by_bytes else words.to(exact_kind)
    converted = not by_bytes and codes.vectors.dtype != exact_kind
    exact = torch.empty(most if converted else 0, codes.dim, dtype=exact_kind, device=words.device)
    for some, _ in tiles:
        tile = codes.part(some.start, some.stop)
        vectors = tile.vectors if not len(exact) else exact[: len(tile.vectors)].copy_(tile.vectors)
        (torch._int_mm if by_bytes else torch.mm)(vectors, words, out=table[: len(vectors)])
        best = _best(table[: len(vectors)], tile)
        if integer:
            best = best.to(kind) * word_scale
        torch.mm(best, members, out=scores[some])
    if integer:
        assert codes.bounds is not None
        scale, reach, error = codes.bounds[..., None]
        scores *= scale
        if problem.bound:
            scores += reach * off + error * size
    return scores.masked_fill_(empty[:, None], -torch.inf).T


MAXSIM: Operator[MaxSimProblem, Tensor] = Operator(
    "maxsim",
    (Backend("triton", _suits_triton, _run_triton, gpu.triton_unavailable), Backend("torch", anything, _run_torch)),
)


def _best(table: Tensor, tile: RegionCodes) -> Tensor:
    """The best row of each picture, for every word: [picture, word]."""
    if tile.regions:
        return table.view(len(tile), tile.regions, -1).amax(dim=1)
    owner = torch.repeat_interleave(torch.arange(len(tile), device=table.device), tile.starts.diff())
    least = table.new_zeros(len(tile), table.shape[1])
    return least.scatter_reduce(0, owner[:, None].expand_as(table), table, "amax", include_self=False)


def _tiles(codes: RegionCodes, rows: int) -> list[tuple[slice, slice]]:
    """Pictures, and their rows, of tiles that have at most so many rows, or are a single picture."""
    if codes.regions is None:
        return list(neighbours(codes.starts.diff().tolist(), rows))
    step, each = max(1, rows // max(1, codes.regions)), codes.regions
    ranges = [(first, min(first + step, len(codes))) for first in range(0, len(codes), step)]
    return [(slice(first, stop), slice(first * each, stop * each)) for first, stop in ranges]


def maxsim_reference(
    words: Float[Tensor, "query word dim"],
    word_mask: Bool[Tensor, "query word"],
    regions: Float[Tensor, "picture region dim"],
    region_mask: Bool[Tensor, "picture region"],
) -> Float[Tensor, "query picture"]:
    """From the definition, one pair, one word at a time, in float64: what `maxsim` must equal."""
    table = torch.zeros(len(words), len(regions), dtype=torch.float64)
    for query, (own, real_words) in enumerate(zip(words.double().cpu(), word_mask.cpu(), strict=True)):
        for picture, (shown, real_regions) in enumerate(zip(regions.double().cpu(), region_mask.cpu(), strict=True)):
            if not bool(real_regions.any()):
                table[query, picture] = -torch.inf
                continue
            for word in own[real_words]:
                table[query, picture] += (shown[real_regions] @ word).max()
    return table
