"""All pairs of items in 16 bits: a matrix product for some query rows at a time, finished by `attention_epilogue.cu`.

Items lie in memory without padding, but for one column after an item of odd length. Queries come in bins of whole
items, as many rows as a warp holds in registers. The context's items keep columns of their own, from the narrowest to
the widest; a thread reads two columns at a time. Context items of one number of tiles (of 8 columns) go through one
kernel, each warp with a bin of queries.

How the work is cut has a default. Before a large table `_tune` tries some cuts, once, in some seconds, and keeps the
best for this GPU, precision and class of lengths in `kernels/cuts.json` in Saccade's cache, where every later call
finds it: how fast a table is may hang on that file, what is in it never.

Where every vector goes depends on the items' lengths alone. Plans are kept for the last few sets of lengths: whoever
measures a model after every epoch asks with the same sentences and pictures again.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.core.cache import Untrusted, cached, close_to_others, read_cached
from saccade.core.files import write_json
from saccade.ops.cuda import MAX_BIN_TILES
from saccade.ops.cuda.nvrtc import Argument, cuda_kernel, launch
from saccade.ops.form import EPSILON, MAX_UNSHIFTED_SHARPNESS, AttentionForm, Context, Queries, name_of
from saccade.ops.packing import assign, fill_empty

WARPS = 4  # of a block of threads: as in attention_epilogue.cu
SLOTS = 8  # items of a bin: as there
MAX_COLUMNS = 1 << 24  # of a product: rows of a bin are told apart by 32 bits
CHUNK = 16  # items of the context that a warp goes through
MIN_TUNED_SCORES = 1 << 31  # of a table that is worth a trial
TRIAL_ROWS = 32768  # of queries
MAX_HALF_SHARPNESS = 10.0  # up to here exp is a float16
MAX_PLANS = 16  # kept
POOLS = ("logsumexp", "mean", "max", "sum")


@dataclass(frozen=True)
class Cut:
    """How all pairs are cut for the kernel."""

    tiles: int = 10  # of 16 × 8 scores for a warp: few take few registers, so that many warps run side by side
    rows: int = 8192  # query rows whose scores are in memory at once


TRIED_CUTS = tuple(Cut(tiles, rows) for tiles in (10, 15, 21) for rows in (4096, 8192))
TRIALS = 7  # of each
CUTS_FILE = ("kernels", "cuts.json")  # in the cache


def epilogue_similarity(
    queries: Queries,
    context: Context,
    form: AttentionForm,
    dtype: torch.dtype,
    budget: int | None = None,
    cut: Cut | None = None,
) -> Float[Tensor, "item other"]:
    """`ops.attended_similarity` in float32 from vectors of 16 bits; scores take at most `budget` bytes at a time.

    Without a `cut`, the one that a trial found best, or the default; before a large table there is a trial.
    """
    if len(context) > (part := max(1, MAX_COLUMNS // context.parts)):
        pieces = (slice(first, first + part) for first in range(0, len(context), part))
        parts = (Context(context.vectors[piece], context.mask[piece]) for piece in pieces)
        return torch.cat([epilogue_similarity(queries, some, form, dtype, budget, cut) for some in parts], dim=1)
    key = _key(queries, context, dtype)
    cut = cut or _known_cuts().get(key)
    if cut is None and queries.mask.numel() * context.mask.numel() >= MIN_TUNED_SCORES:
        print("note: a large table: trying how this GPU cuts it best, once", file=sys.stderr)
        some = slice(max(1, TRIAL_ROWS // queries.parts))
        sample = Queries(queries.vectors[some], queries.mask[some])
        cut = _tune(lambda tried: epilogue_similarity(sample, context, form, dtype, budget, tried), key)
    cut = cut or Cut()
    query_lengths, context_lengths = _lengths_of(queries.mask, context.mask)
    out = torch.empty(len(queries), len(context), dtype=torch.float32, device=queries.device)
    if query_lengths.counts.any() and context_lengths.counts.any():
        other = _context_plan(context_lengths, context.device)
        own = _query_plan(query_lengths, max(1, cut.tiles // other.groups[-1][0]), queries.device)
        rows, columns = _packed(queries, query_lengths, own, dtype), _packed(context, context_lengths, other, dtype)
        many = cut.rows
        if budget is not None:
            many = max(16 * own.tiles, min(many, budget // (len(columns) * dtype.itemsize)))
        _fill(out, rows, own, columns, other, form, many)
    return fill_empty(out, form, query_lengths.empty, context_lengths.empty, queries.mask.sum(dim=1))


def _tune(run: Callable[[Cut], object], key: str) -> Cut:
    """The cut with which `run` takes least time; it is remembered.

    They take turns, so that a GPU that warms up and slows down does it to all of them; the first turn compiles.
    """
    times = dict.fromkeys(TRIED_CUTS, float("inf"))
    for turn in range(1 + TRIALS):
        for cut in TRIED_CUTS:
            start = _finished()
            run(cut)
            seconds = _finished() - start
            times[cut] = min(times[cut], seconds) if turn else times[cut]
    best = min(TRIED_CUTS, key=lambda cut: times[cut])
    file = cached(*CUTS_FILE)
    write_json(file, {name: asdict(cut) for name, cut in (_known_cuts() | {key: best}).items()})
    close_to_others(file)
    _known_cuts.cache_clear()
    return best


def _finished() -> float:
    """The time at which a GPU has done all that it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@cache
def _known_cuts() -> dict[str, Cut]:
    """Of earlier trials; a file that others could write, cannot be read, or of another version, is as good as none."""
    try:
        found = {key: Cut(**fields) for key, fields in json.loads(read_cached(*CUTS_FILE)).items()}
    except (Untrusted, OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {key: cut for key, cut in found.items() if cut in TRIED_CUTS}


def _key(queries: Queries, context: Context, dtype: torch.dtype) -> str:
    """What a cut is best for: the device, the precision and the class of lengths."""
    name = torch.cuda.get_device_name(queries.device) if queries.vectors.is_cuda else queries.device.type
    sizes = "x".join(str(1 << (side.parts - 1).bit_length()) for side in (queries, context))
    return f"{name} {name_of(dtype)} {sizes}"


class Lengths(NamedTuple):
    """How many real vectors each item has, on the host, as a key that plans are kept by."""

    numbers: bytes
    places: int
    first: bool  # whether an item's real vectors are the first of its places

    @property
    def counts(self) -> Int[np.ndarray, " item"]:
        return np.frombuffer(self.numbers, dtype=np.int64)

    @property
    def empty(self) -> list[int]:
        return [int(item) for item in np.flatnonzero(self.counts == 0)]


def _lengths_of(*masks: Bool[Tensor, "item place"]) -> list[Lengths]:
    """Of several masks, waiting for a GPU once."""
    facts = [torch.cat([mask.sum(dim=1), (mask[:, 1:] <= mask[:, :-1]).all().long()[None]]) for mask in masks]
    known = np.split(torch.cat(facts).cpu().numpy(), np.cumsum([len(fact) for fact in facts[:-1]]))
    return [
        Lengths(fact[:-1].tobytes(), mask.shape[1], bool(fact[-1])) for fact, mask in zip(known, masks, strict=True)
    ]


@dataclass(frozen=True)
class QueryPlan:
    """Query items in bins."""

    rows: Int[Tensor, " row"] | None  # where each packed row is; None: nothing moves
    tiles: int  # of 16 rows in a bin
    start: Int[Tensor, " bin"]
    slot_begin: Int[Tensor, "bin slot_and_one"]
    slot_item: Int[Tensor, "bin slot"]
    starts: list[int]  # `start` on the host, and the end of the last bin


@dataclass(frozen=True)
class ContextPlan:
    """Context items, from the narrowest to the widest."""

    rows: Int[Tensor, " column"] | None
    start: Int[Tensor, " item"]
    length: Int[Tensor, " item"]
    number: Int[Tensor, " item"]
    groups: list[tuple[int, slice]]  # items that take the same number of tiles: which number, and which items


@lru_cache(maxsize=MAX_PLANS)
def _query_plan(lengths: Lengths, most: int, device: torch.device) -> QueryPlan:
    counts = lengths.counts
    tiles = _tiles(counts[counts > 0], most)
    item, length = assign(counts, 16 * tiles, SLOTS)
    ends = np.cumsum(length, axis=1)
    starts = np.concatenate([[0], np.cumsum(ends[:, -1])])
    order = item[length > 0]
    facts = np.concatenate([np.zeros_like(item[:, :1]), ends, item, starts[:-1, None]], axis=1).astype(np.int32)
    there = torch.from_numpy(facts).to(device)
    begins, items, start = (
        part.contiguous() for part in (there[:, : SLOTS + 1], there[:, SLOTS + 1 : -1], there[:, -1])
    )
    return QueryPlan(_rows(lengths, order, counts[order], device), tiles, start, begins, items, starts.tolist())


@lru_cache(maxsize=MAX_PLANS)
def _context_plan(lengths: Lengths, device: torch.device) -> ContextPlan:
    tiles = -(-lengths.counts // 8)
    number = np.argsort(tiles.astype(np.int16), kind="stable")
    number = number[tiles[number] > 0]
    tiles, own = tiles[number], lengths.counts[number]
    sizes = own + own % 2
    begin = np.cumsum(sizes) - sizes
    sizes[-1] += -(begin[-1] + sizes[-1]) % 8  # a matrix product likes such widths
    start, length, numbers = torch.from_numpy(np.stack([begin, own, number]).astype(np.int32)).to(device)
    bounds = np.flatnonzero(np.diff(tiles, prepend=0, append=0))
    groups = [(int(tiles[a]), slice(int(a), int(b))) for a, b in itertools.pairwise(bounds)]
    return ContextPlan(_rows(lengths, number, sizes, device), start, length, numbers, groups)


def _tiles(lengths: Int[np.ndarray, " item"], most: int) -> int:
    """How many tiles of 16 rows a bin has: as full as can be, of few tiles, so that many warps run side by side."""
    longest, mean = int(lengths.max()), float(lengths.mean())
    least = -(-longest // 16)
    sizes = [16 * tiles for tiles in range(least, max(least, min(most, MAX_BIN_TILES)) + 1)]
    if longest == int(lengths.min()):
        full = [size // longest * longest / size for size in sizes]
    else:  # items of many lengths fill nearly anything that holds some of them
        full = [1 - 0.5 * (mean / size) ** 2 for size in sizes]
    return max(zip(full, (-size for size in sizes), strict=True))[1] // -16


def _rows(
    lengths: Lengths, order: Int[np.ndarray, " chosen"], sizes: Int[np.ndarray, " chosen"], device: torch.device
) -> Int[Tensor, " row"] | None:
    """Items one after the other, in so many rows each, its own and the last of them again: where each row is.

    Among all places where items have their real vectors first, else among the real ones.
    """
    counts, places = lengths.counts, lengths.places
    whole = len(order) == len(counts) and bool((np.stack([sizes, counts]) == places).all())
    if whole and bool((np.diff(order) > 0).all()):
        return None
    first = order * places if lengths.first else (np.cumsum(counts) - counts)[order]
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    within = np.minimum(within, np.repeat(counts[order] - 1, sizes))
    return torch.from_numpy(np.repeat(first, sizes) + within).to(device)


def _packed(
    side: Queries | Context, lengths: Lengths, plan: QueryPlan | ContextPlan, dtype: torch.dtype
) -> Float[Tensor, "row dim"]:
    vectors, rows = side.vectors.to(dtype).flatten(0, 1), plan.rows
    if rows is None:
        return vectors
    return vectors.index_select(0, rows if lengths.first else side.mask.flatten().nonzero().squeeze(1)[rows])


def _blocks(tall: int, wide: int) -> int:
    """How many blocks of threads a multiprocessor has registers for, with so many tiles a warp."""
    return next(blocks for tiles, blocks in ((6, 5), (10, 4), (15, 3), (32, 2)) if tall * wide <= tiles)


def _gram(
    vectors: Tensor, start: Tensor, length: Tensor, tiles: int, dtype: torch.dtype
) -> tuple[Float[Tensor, "item tile step g t half pair"], Float[Tensor, " item"]]:
    """Products of each item's vectors, as right factors of the tensor cores: a thread's two pairs of numbers.

    And what the vectors were multiplied with for it: in float16 they may be no longer than one.
    """
    wide, steps = 8 * tiles, -(-tiles // 2)
    place = torch.arange(wide, device=vectors.device)
    own = vectors[start[:, None] + torch.minimum(place, length[:, None] - 1)]
    real = place < length[:, None]
    size = torch.ones(len(start), device=vectors.device)
    if vectors.dtype == torch.float16:  # by a power of two, which rounds nothing
        longest = torch.linalg.vector_norm(own, dim=2, dtype=torch.float32).amax(dim=1).clamp(min=EPSILON)
        size = longest.log2_().ceil_().neg_().exp2_()
        own = own * size.half()[:, None, None]
    products = torch.bmm(own, own.transpose(1, 2)).mul_(real[:, :, None] & real[:, None])
    tall = F.pad(products, (0, 16 * steps - wide)).to(dtype)
    return tall.view(-1, tiles, 8, steps, 2, 4, 2).permute(0, 1, 3, 2, 5, 4, 6).contiguous(), size


def _fill(
    out: Float[Tensor, "item other"],
    queries: Float[Tensor, "row dim"],
    own: QueryPlan,
    context: Float[Tensor, "column dim"],
    other: ContextPlan,
    form: AttentionForm,
    rows: int,
) -> None:
    """All query vectors, bin by bin, some `rows` at a time, with all context vectors."""
    starts, start, length = own.starts, other.start, other.length
    norms = torch.linalg.vector_norm(queries, dim=1, dtype=torch.float32)
    inverse = norms.clamp_(min=EPSILON).reciprocal_()
    bins = len(starts) - 1
    step = max(1, rows // (16 * own.tiles))
    most = max(starts[min(b + step, bins)] - starts[b] for b in range(0, bins, step))
    buffer = queries.new_zeros(most + 16 * own.tiles, len(context))  # a bin that is not full reads on into the next
    half = buffer.dtype == torch.float16
    weights = torch.float16 if half and abs(form.sharpness) <= MAX_HALF_SHARPNESS else torch.bfloat16
    shifted = form.pool == "logsumexp" and abs(form.pool_sharpness) > MAX_UNSHIFTED_SHARPNESS
    constants = {
        "M_TILES": own.tiles,
        "HALF": half,
        "HALF_WEIGHTS": weights == torch.float16,
        "CLIPPED": form.normaliser.startswith("clipped"),
        "SUM": form.norm_power,
        "POOL": POOLS.index(form.pool),
        "SHIFTED": shifted,
        "CHUNK": CHUNK,
    }
    options = tuple(f"-D{name}={int(value)}" for name, value in constants.items())
    grams: list[tuple[Tensor, Tensor]] = []
    for first in range(0, bins, step):
        last = min(first + step, bins)
        some = queries[starts[first] : starts[last]]
        scores = torch.mm(some, context.T, out=buffer[: len(some)])
        if not grams:  # made ready while a GPU is at the first product
            grams = [_gram(context, start[who], length[who], wide, weights) for wide, who in other.groups]
        for (wide, who), (gram, size) in zip(other.groups, grams, strict=True):
            _launch(
                (*options, f"-DN_TILES={wide}", f"-DBLOCKS={_blocks(own.tiles, wide)}"),
                (-(-(who.stop - who.start) // CHUNK), -(-(last - first) // WARPS)),
                (
                    *(scores, ctypes.c_longlong(scores.stride(0))),
                    *(own.start, own.slot_begin, own.slot_item, inverse),
                    *map(ctypes.c_int, (first, last, starts[first], starts[last])),
                    *(start, length, other.number, gram, size),
                    *map(ctypes.c_int, (who.start, who.stop)),
                    out,
                    *map(ctypes.c_longlong, out.stride()),
                    *map(ctypes.c_float, (form.sharpness / math.log(2), form.slope, form.pool_sharpness)),
                ),
            )


def _launch(options: tuple[str, ...], grid: tuple[int, int], arguments: Sequence[Argument]) -> None:
    kernel = cuda_kernel("attention_epilogue.cu", "attention_epilogue", options, torch.cuda.current_device())
    launch(kernel, grid, 32 * WARPS, arguments)
