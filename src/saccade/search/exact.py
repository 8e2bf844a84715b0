"""Exact search by MaxSim over codes that may be far larger than memory: tile by tile, the best k kept.

With codes in bytes, search can still be exact. A tile's bytes give, for every picture, the most that its exact codes
could score; only pictures for which that reaches the k-th best exact score found so far are scored again from the exact
codes. Whatever is left out could not have been among the best: nothing is guessed.

Items of equal score are ranked by their index, so that a ranking of given scores does not depend on how the items were
cut into tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.core.errors import SaccadeError
from saccade.core.threads import ahead
from saccade.ops.form import DEFAULT_BUDGET
from saccade.ops.gpu import on_gpu_of
from saccade.search.maxsim import QueryWords, by_triton, can_choose, maxsim_codes
from saccade.search.region_codes import RegionCodes

if TYPE_CHECKING:
    from saccade.search.triton.launch import PreparedWords, TileScores

_AHEAD = 2  # tiles that are read while another is searched
_CPU_PICTURES = 4096  # of a tile that is read from disk: some tens of megabytes
_BLOCK = 64  # items whose best one alone is compared first
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


class CodeSource(Protocol):
    """Region codes by picture: in memory (`RegionCodes`), or read from elsewhere a part at a time."""

    @property
    def dim(self) -> int: ...

    def __len__(self) -> int: ...

    def part(self, first: int, stop: int) -> RegionCodes: ...

    def pick(self, pictures: Tensor) -> RegionCodes: ...


def search_codes(
    queries: QueryWords,
    codes: CodeSource,
    k: int = 100,
    exact: CodeSource | None = None,
    device: torch.device | str | None = None,
    budget: int = DEFAULT_BUDGET,
) -> Ranking:
    """The k pictures that score best for each query, best first; of equal scores the earlier picture is first.

    Scores are sums in floating point, and a matrix product may add in another order for another place of a tile: two
    pictures of equal codes can score apart by the last bit, and then either may be first.

    `exact`: if `codes` are bytes, the codes they were made from; the ranking is then that of the exact codes.
    `device`: where to search; codes that lie elsewhere are sent there tile by tile. Scores and tiles of codes take
    about `budget` bytes each. Words are rounded to the precision of the exact codes, so that every device ranks alike.
    """
    if k < 1:
        raise SaccadeError(f"k is {k}: at least one picture must be asked for")
    if queries.words.shape[1] != codes.dim:
        raise SaccadeError(f"the words have {queries.words.shape[1]} dimensions, the codes {codes.dim}")
    if exact is not None and (len(exact), exact.dim) != (len(codes), codes.dim):
        raise SaccadeError(
            f"the codes in bytes ({len(codes):,} pictures of {codes.dim} dimensions) were not made from the exact ones "
            f"({len(exact):,} of {exact.dim})"
        )
    place = torch.device(device) if device is not None else _home(codes)
    if place == torch.device("cuda"):  # as tensors name it that lie there: "cuda" is one of them
        place = torch.device("cuda", torch.cuda.current_device())
    source = codes if exact is None else exact
    kind = (source if isinstance(source, RegionCodes) else source.part(0, 0)).vectors.dtype
    queries = queries.to(place)
    if kind in (torch.float16, torch.bfloat16):
        queries = queries.to(kind).to(torch.float32)
    search = _Search(queries, exact, k, place, budget)
    found: Ranking | None = None
    with on_gpu_of(queries.words):
        for first, tile in stream(codes, _pictures(queries, codes, place, budget), place):
            best = search.best(tile, first) if exact is None else search.certain(tile, exact, first, found)
            found = best if found is None else found.join(best, k)
    if found is None:
        nothing = torch.zeros(len(queries), 0, device=place)
        return Ranking(nothing, nothing.long())
    return Ranking(found.scores[:, : len(codes)], found.indices[:, : len(codes)])


def stream(codes: CodeSource, step: int, device: torch.device) -> Iterator[tuple[int, RegionCodes]]:
    """Tiles of `step` pictures on a device, the next ones read by other threads meanwhile."""
    firsts = range(0, len(codes), step)
    if isinstance(codes, RegionCodes) and codes.vectors.device == device:
        for first in firsts:
            yield first, codes.part(first, min(first + step, len(codes)))
        return
    copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def read(first: int) -> tuple[int, RegionCodes, torch.cuda.Event | None]:
        tile = codes.part(first, min(first + step, len(codes)))
        if copies is None:
            tile.vectors.view(torch.int8).view(-1)[::4096].sum()  # every page: the disk is read here, in the thread
            return first, tile, None
        with torch.cuda.stream(copies):
            sent = tile.pinned().to(device, non_blocking=True)
            return first, sent, copies.record_event()

    tiles = ahead(read, firsts, _AHEAD, _AHEAD)
    try:
        for first, tile, arrived in tiles:
            if arrived is not None:
                torch.cuda.current_stream(device).wait_event(arrived)
                tile.used_by(torch.cuda.current_stream(device))
            yield first, tile
    finally:
        tiles.close()


@dataclass
class _Search:
    """What is the same for every tile of a search."""

    queries: QueryWords
    exact: CodeSource | None
    k: int
    device: torch.device
    budget: int
    words: PreparedWords | None = None  # as a GPU wants them, made for the first tile

    @cached_property
    def near(self) -> RegionCodes | None:
        """Exact codes that a kernel can pick from by itself."""
        exact = self.exact
        if isinstance(exact, RegionCodes) and exact.vectors.device == self.device and can_choose(self.queries, exact):
            return exact
        return None

    def launched(self, tile: RegionCodes, bound: bool = False) -> TileScores | None:
        """The scores of a tile, if Triton's kernels can score it."""
        if not by_triton(self.queries, tile):
            return None
        from saccade.search.triton.launch import launch, words_for

        self.words = self.words or words_for(self.queries, tile, self.near)
        return launch(self.queries, tile, bound, words=self.words)

    def best(self, tile: RegionCodes, first: int) -> Ranking:
        launched = self.launched(tile)
        if launched is None:
            return top_k(maxsim_codes(self.queries, tile, self.budget), self.k, first)
        from saccade.search.triton.lists import best_listed

        return best_listed(launched, self.k, first) or top_k(launched[0], self.k, first, *launched[1:])

    def certain(self, tile: RegionCodes, exact: CodeSource, first: int, found: Ranking | None) -> Ranking:
        """The best k of a tile of bytes by their exact scores, leaving out what cannot be among the best k of all."""
        k = self.k
        known = found.scores[:, k - 1] if found is not None and found.scores.shape[1] >= k else None
        launched = self.launched(tile, bound=True)
        most = launched[0] if launched else maxsim_codes(self.queries, tile, self.budget, bound=True)
        if launched is not None and self.near is not None and tile.vectors.dtype == torch.int8:
            from saccade.search.triton.lists import certain_listed

            best = certain_listed(self.queries, self.near, launched, k, first, known, self.words)
            if best is not None:
                return best
        if known is None:  # the exact scores of a first guess say how good is good enough
            guess = self.scored(exact, top_k(most, k, first, *(launched[1:] if launched else ())).indices)
            known = guess.scores[:, k - 1] if guess.scores.shape[1] >= k else most.new_full((len(most),), -torch.inf)
        return self.scored(exact, _listed(most >= known[:, None], first))

    def scored(self, exact: CodeSource, listed: Int[Tensor, "query choice"]) -> Ranking:
        """Rank the listed pictures of each query by their exact scores."""
        if not listed.shape[1]:
            return Ranking(torch.zeros(listed.shape, device=listed.device), listed)
        if self.near is not None:
            from saccade.search.triton.launch import launch_chosen

            return ranked(launch_chosen(self.queries, self.near, listed), listed, self.k, listed >= 0)
        pictures, places = torch.unique(listed.clamp(min=0), return_inverse=True)  # any query's, each read once
        scores = maxsim_codes(self.queries, exact.pick(pictures.to(_home(exact))).to(listed.device), self.budget)
        return ranked(scores.float().gather(1, places), listed, self.k, listed >= 0)


def _listed(chosen: Bool[Tensor, "query picture"], first: int) -> Int[Tensor, "query choice"]:
    """The numbers of each query's pictures, filled up with −1."""
    query, picture = chosen.nonzero(as_tuple=True)
    counts = query.bincount(minlength=len(chosen))
    rank = torch.arange(len(query), device=chosen.device) - (counts.cumsum(0) - counts)[query]
    listed = torch.full((len(chosen), int(counts.max())), -1, device=chosen.device)
    listed[query, rank] = picture + first
    return listed


def _pictures(queries: QueryWords, codes: CodeSource, device: torch.device, budget: int) -> int:
    """How many pictures make a tile."""
    step = budget // (4 * max(1, len(queries)))
    if isinstance(codes, RegionCodes) and codes.vectors.device == device:
        return max(1, step)
    if device.type == "cpu":
        return max(1, min(step, _CPU_PICTURES))
    some = codes.part(0, min(len(codes), 64))  # as large as the others, or nearly
    each = max(1, some.vectors.nbytes // max(1, len(some)))
    return max(1, min(step, budget // ((_AHEAD + 1) * each)))


def _home(codes: CodeSource) -> torch.device:
    return codes.vectors.device if isinstance(codes, RegionCodes) else torch.device("cpu")
