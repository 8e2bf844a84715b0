"""Exact top-100 search by late interaction (MaxSim): a batch of queries over many pictures' codes.

The baseline is the same search as PyTorch users write it: one query at a time, a product, a maximum and a sum for every
tile, all scores kept, `topk` at the end. It takes as long for every query and picture, so a part tells.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from benchmarks.bench import Bench, Case
from benchmarks.problems import LONGEST, SHORTEST, largest_difference
from benchmarks.rows import Growth, Row, Target
from benchmarks.timing import product
from saccade.search import QueryWords, Ranking, RegionCodes, search_codes

REGIONS, DIM, BATCH, BEST = 36, 128, 16, 100
RIGHT = Target("answers_that_differ", "≤", 0)
QUICK = Target("times_floor", "≤", 1.5)
TILE = 4096  # pictures of the baseline's tiles


def cpu(bench: Bench) -> Iterator[Case]:
    count = bench.size(20_000, 300)
    yield Case("top-100 search, memory-mapped float16", partial(mapped, bench, count, False))
    yield Case("top-100 search, memory-mapped bytes, exact", partial(mapped, bench, count, True))


def gpu(bench: Bench) -> Iterator[Case]:
    count = bench.size(1_000_000, 300)
    yield Case("top-100 search, float16", partial(in_memory, bench, count, False))
    yield Case("top-100 search, bytes, exact", partial(in_memory, bench, count, True))
    yield Case("top-100 search", partial(growth, bench, count), "pictures")


@torch.no_grad()
def in_memory(bench: Bench, count: int, bytes_first: bool) -> Row:
    """Held against reading the float16 codes once, from bytes too: those are the codes asked for.

    Where the tensor cores need well over that for multiplying them, the floor of float16 codes is a product's.
    """
    codes, queries = random_codes(bench.device, count), random_queries(bench.device)
    quick = joined_bytes(codes) if bytes_first else codes
    exact = codes if bytes_first else None
    ours = partial(search_codes, queries, quick, BEST, exact)
    _, peak = bench.peak(ours)
    spent = bench.best_of({"ours": ours}, runs=10)
    reading = codes.vectors.numel() * codes.vectors.element_size() / bench.bandwidth()
    multiplying = 0.0 if bytes_first else 2 * codes.vectors.numel() * len(queries.words) / product_rate(bench)
    bound = multiplying > 1.3 * reading
    part = codes.part(0, min(count, 20_000))
    again = search_codes(queries, joined_bytes(part) if bytes_first else part, BEST, part if bytes_first else None)
    difference, figures = checked(again, queries, part)
    more = "a second copy of the codes, in bytes, is kept" if bytes_first else ""
    if bound:
        more = f"reading the codes once takes {1000 * reading:.3g} ms, multiplying them {1000 * multiplying:.3g} ms"
    return Row(
        name="",
        shape=shape(count),
        seconds=spent["ours"],
        official_seconds=plain_seconds(bench, queries, part, count),
        floor_seconds=multiplying if bound else reading,
        floor="GEMM" if bound else "read once",
        difference=difference,
        peak_bytes=peak,
        figures=figures,
        targets=(RIGHT,) if bound else (QUICK, RIGHT),
        note=f"against one query at a time in PyTorch, timed on a part{'; ' if more else ''}{more}",
    )


@torch.no_grad()
def mapped(bench: Bench, count: int, bytes_first: bool) -> Row:
    """From a file on disk, in the system's cache after the first run."""
    codes, queries = random_codes("cpu", count), random_queries("cpu")
    with tempfile.TemporaryDirectory() as folder:
        exact = on_disk(codes, Path(folder) / "exact.safetensors")
        quick = on_disk(codes.to_bytes(), Path(folder) / "bytes.safetensors") if bytes_first else exact
        ours = partial(search_codes, queries, quick, BEST, exact if bytes_first else None)
        floor = product(codes.vectors.float(), queries.words)
        spent = bench.best_of({"ours": ours, "floor": floor}, runs=3)
        difference, figures = checked(ours(), queries, codes)
        return Row(
            name="",
            shape=shape(count),
            seconds=spent["ours"],
            official_seconds=plain_seconds(bench, queries, codes.part(0, min(count, TILE)), count),
            floor_seconds=spent["floor"],
            floor="GEMM",
            difference=difference,
            figures=figures,
            targets=(RIGHT,),
            note="against one query at a time in PyTorch, timed on a part",
        )


def on_disk(codes: RegionCodes, path: Path) -> RegionCodes:
    """The same codes as a view into a file."""
    save_file({"vectors": codes.vectors}, path)
    with safe_open(path, "pt") as file:
        return replace(codes, vectors=file.get_tensor("vectors"))


@torch.no_grad()
def growth(bench: Bench, count: int) -> Growth:
    codes, queries = random_codes(bench.device, count), random_queries(bench.device)
    sizes = (count // 8, count // 4, count // 2, count)
    runs = {str(size): partial(search_codes, queries, codes.part(0, size), BEST) for size in sizes}
    spent = bench.best_of(runs)
    kept = f"{BATCH} queries, {REGIONS} regions, {DIM} dimensions"
    return Growth("", "pictures", sizes, tuple(spent.values()), kept, (Target("exponent", "≤", 1.1),))


def shape(count: int) -> str:
    return f"{BATCH} queries × {count:,} pictures, {REGIONS} regions, {DIM}-d"


def random_codes(device: str, count: int) -> RegionCodes:
    """Unit vectors in half precision, made a tile at a time: a million pictures are 9.2 GB."""
    draw = torch.Generator(device).manual_seed(0)
    vectors = torch.empty(count, REGIONS, DIM, dtype=torch.float16, device=device)
    for first in range(0, count, 16 * TILE):
        part = vectors[first : first + 16 * TILE]
        part.copy_(F.normalize(torch.randn(part.shape, generator=draw, device=device), dim=-1))
    return RegionCodes.of(vectors, None)


def random_queries(device: str) -> QueryWords:
    draw = torch.Generator().manual_seed(1)
    words = F.normalize(torch.randn(BATCH, LONGEST, DIM, generator=draw), dim=-1)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (BATCH, 1), generator=draw)
    return QueryWords.of(words.to(device), (torch.arange(LONGEST) < lengths).to(device))


def joined_bytes(codes: RegionCodes) -> RegionCodes:
    """In parts: on the way to bytes codes are float32, several times over."""
    size = 32 * TILE
    return RegionCodes.join(
        [codes.part(first, min(first + size, len(codes))).to_bytes() for first in range(0, len(codes), size)]
    )


def plain_seconds(bench: Bench, queries: QueryWords, part: RegionCodes, count: int) -> float:
    """All queries over `count` pictures, from one query over a part of them."""
    query = queries.words[queries.owner == 0].to(part.vectors.dtype if bench.device == "cuda" else torch.float32)

    def plain() -> Tensor:
        scores = scored(query, part)
        return scores.topk(min(BEST, len(scores))).indices

    words = len(queries.words) / len(query)
    return bench.best_of({"plain": plain}, runs=3)["plain"] * words * count / len(part)


def product_rate(bench: Bench) -> float:
    """Operations a second of a large product of half precision: what the codes could be multiplied at, at best."""
    size = bench.size(8192, 64)
    table = torch.randn(size, size, device=bench.device).half()
    return 2 * size**3 / bench.best_of({"product": lambda: table @ table})["product"]


def scored(words: Tensor, codes: RegionCodes) -> Tensor:
    """One query with all pictures, in the precision of its words."""
    vectors = codes.vectors.view(-1, REGIONS, DIM)
    tiles = (vectors[first : first + TILE].to(words.dtype) for first in range(0, len(vectors), TILE))
    return torch.cat([(tile @ words.T).amax(dim=1).sum(dim=1) for tile in tiles])


def checked(found: Ranking, queries: QueryWords, codes: RegionCodes) -> tuple[float, dict[str, float]]:
    """How far the best scores are from those in float64, and how many answers are not among the best there."""
    exact = torch.stack([scored(queries.words[queries.owner == query].double(), codes) for query in range(BATCH)])
    least = exact.topk(found.scores.shape[1], dim=1).values[:, -1:]
    own = exact.gather(1, found.indices)
    return largest_difference(found.scores, own), {"answers_that_differ": float((own < least - 1e-3).sum())}
