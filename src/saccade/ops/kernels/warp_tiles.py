"""All pairs of items in 16 bits by `finish.cu`: a matrix product for some query rows at a time, finished warp by warp.

Queries are packed into bins of whole items, as many rows as a warp holds in registers. The context's items keep their
own columns, and those of one number of tiles (of 8 columns) go through one kernel. Both sides lie in memory without
padding, but for one column after an item of odd length: a thread reads two at a time.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.kernels.cuda_source import Argument, cuda_kernel, have_nvrtc, launch
from saccade.ops.kernels.packing import assign
from saccade.ops.kernels.tuning import Cut, known_cut, tune
from saccade.ops.pairwise import AttentionForm

SLOTS, WARPS = 8, 4  # of a bin; of a block of threads: as in finish.cu
MOST_TILES = 21  # of 16 × 8 scores for a warp: what its registers hold beside all the rest
TALLEST = 7  # tiles of 16 rows: larger bins are hardly fuller
WIDEST = 64  # columns of an item
CHUNK = 16  # items of the context that a warp goes through
LARGE = 1 << 34  # scores of a table that is worth a trial
SAMPLE = 32768  # query rows of the trial
SHARP = 30.0  # up to here exp needs no maximum
HALF_SHARP = 10.0  # up to here exp is a float16
EPSILON = 1e-8
SUMS = {"clipped_l2": 2, "l2": 2, "clipped_l1": 1, "l1": 1}
DTYPES = (torch.bfloat16, torch.float16)
POOLS = ("logsumexp", "mean", "max", "sum")

Launcher = Callable[[tuple[str, ...], tuple[int, int], Sequence[Argument]], None]


@dataclass(frozen=True)
class Asking:
    """Query items in bins."""

    vectors: Float[Tensor, "row dim"]
    inverse: Float[Tensor, " row"]  # 1 / |q|
    tiles: int  # of 16 rows in a bin
    start: Int[Tensor, " bin"]
    slot_begin: Int[Tensor, "bin slot_and_one"]
    slot_item: Int[Tensor, "bin slot"]
    starts: list[int]  # `start` on the host, and the end of the last bin


@dataclass(frozen=True)
class Asked:
    """Context items, from the narrowest to the widest."""

    vectors: Float[Tensor, "column dim"]
    start: Int[Tensor, " item"]
    length: Int[Tensor, " item"]
    number: Int[Tensor, " item"]
    groups: list[tuple[int, slice]]  # items that take the same number of tiles: which number, and which items


def suits(
    query_places: int, context_places: int, form: AttentionForm, dtype: torch.dtype, device: torch.device
) -> bool:
    """Whether `finish.cu` can do it: normalised attention in 16 bits, items of a size that registers hold."""
    if (
        form.choice != "attend"
        or form.normaliser not in SUMS
        or abs(form.sharpness) > SHARP
        or dtype not in (torch.bfloat16, torch.float16)
    ):
        return False
    fits = 0 < context_places <= WIDEST and 0 < query_places <= 16 * (MOST_TILES // -(-context_places // 8))
    return fits and torch.cuda.get_device_capability(device) >= (8, 0) and have_nvrtc()


def warp_similarity(
    queries: Float[Tensor, "item query dim"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other part dim"],
    context_mask: Bool[Tensor, "other part"],
    form: AttentionForm,
    dtype: torch.dtype,
    budget: int | None = None,
    cut: Cut | None = None,
    launcher: Launcher | None = None,
) -> Float[Tensor, "item other"]:
    """`ops.attended_similarity` in float32 from vectors of 16 bits; scores take at most `budget` bytes at a time.

    Without a `cut`, the one that a trial found best, or the default; before a large table there is a trial.
    """
    launcher = launcher or _launch
    arguments = (queries, query_mask, context, context_mask, form, dtype, budget)
    cut = cut or known_cut(queries, context, dtype)
    if cut is None and query_mask.numel() * context_mask.numel() >= LARGE:
        print("note: a large table: trying how this GPU cuts it best, once", file=sys.stderr)
        some = slice(max(1, SAMPLE // queries.shape[1]))
        sample = (queries[some], query_mask[some], *arguments[2:])
        cut = tune(lambda tried: warp_similarity(*sample, tried, launcher), queries, context, dtype)
    cut = cut or Cut()
    asking_lengths, asked_lengths = lengths_of(query_mask, context_mask)
    out = torch.empty(len(queries), len(context), dtype=torch.float32, device=queries.device)
    if asking_lengths.counts.any() and asked_lengths.counts.any():
        asked = pack_context(context.to(dtype), context_mask, asked_lengths)
        asking = pack_queries(queries.to(dtype), query_mask, asking_lengths, asked.groups[-1][0], cut.tiles)
        row = len(asked.vectors) * dtype.itemsize
        rows = cut.rows if budget is None else max(16 * asking.tiles, min(cut.rows, budget // row))
        _fill(out, asking, asked, form, rows, launcher)
    return fill_empty(out, asking_lengths.counts, asked_lengths.counts, form)


@dataclass(frozen=True)
class Lengths:
    """How many real vectors each item has, on the host."""

    counts: Int[np.ndarray, " item"]
    first: bool  # whether they are the first of its places


def lengths_of(*masks: Bool[Tensor, "item place"]) -> list[Lengths]:
    """Of several masks, waiting for a GPU once."""
    facts = [torch.cat([mask.sum(dim=1), (mask[:, 1:] <= mask[:, :-1]).all().long()[None]]) for mask in masks]
    known = np.split(torch.cat(facts).cpu().numpy(), np.cumsum([len(fact) for fact in facts[:-1]]))
    return [Lengths(fact[:-1], bool(fact[-1])) for fact in known]


def pack_queries(
    vectors: Float[Tensor, "item query dim"],
    mask: Bool[Tensor, "item query"],
    lengths: Lengths,
    widest: int,
    good: int = Cut.tiles,
) -> Asking:
    """`widest`: the most tiles of columns that an item of the context takes; `good`: tiles that a warp should have."""
    counts = lengths.counts
    tiles = _tiles(counts[counts > 0], max(1, good // widest))
    item, length = assign(counts, 16 * tiles, SLOTS)
    ends = np.cumsum(length, axis=1)
    starts = np.concatenate([[0], np.cumsum(ends[:, -1])])
    order = item[length > 0]
    packed = _packed(vectors, mask, lengths, order, counts[order])
    norms = torch.linalg.vector_norm(packed, dim=1, dtype=torch.float32)
    facts = np.concatenate([np.zeros_like(item[:, :1]), ends, item, starts[:-1, None]], axis=1).astype(np.int32)
    there = torch.from_numpy(facts).to(vectors.device, non_blocking=True)
    begins, items, start = (
        part.contiguous() for part in (there[:, : SLOTS + 1], there[:, SLOTS + 1 : -1], there[:, -1])
    )
    return Asking(packed, norms.clamp_(min=EPSILON).reciprocal_(), tiles, start, begins, items, starts.tolist())


def pack_context(vectors: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"], lengths: Lengths) -> Asked:
    tiles = -(-lengths.counts // 8)
    number = np.argsort(tiles.astype(np.int16), kind="stable")
    number = number[tiles[number] > 0]
    tiles, own = tiles[number], lengths.counts[number]
    sizes = own + own % 2
    start = np.cumsum(sizes) - sizes
    sizes[-1] += -(start[-1] + sizes[-1]) % 8  # a matrix product likes such widths
    packed = _packed(vectors, mask, lengths, number, sizes)
    facts = torch.from_numpy(np.stack([start, own, number]).astype(np.int32)).to(vectors.device, non_blocking=True)
    bounds = np.flatnonzero(np.diff(tiles, prepend=0, append=0))
    places = [slice(int(a), int(b)) for a, b in itertools.pairwise(bounds)]
    first, length, numbers = facts
    return Asked(packed, first, length, numbers, [(int(tiles[place.start]), place) for place in places])


def fill_empty(
    out: Float[Tensor, "item other"],
    lengths: Int[np.ndarray, " item"],
    widths: Int[np.ndarray, " other"],
    form: AttentionForm,
) -> Float[Tensor, "item other"]:
    """What pools of nothing are, as in the plain form: an item without queries, queries that find no context."""
    nobody, nothing = np.flatnonzero(lengths == 0), np.flatnonzero(widths == 0)
    if len(nothing):  # every query's R is 0
        counts = torch.from_numpy(lengths).to(out.device, torch.float32)
        pooled = counts.log() / form.pool_sharpness if form.pool == "logsumexp" else counts * 0
        out[:, nothing] = pooled[:, None]
    if len(nobody):
        out[nobody] = -torch.inf if form.pool in ("logsumexp", "max") else 0.0
    return out


def _tiles(lengths: Int[np.ndarray, " item"], most: int) -> int:
    """How many tiles of 16 rows a bin has: as full as can be, of few tiles, so that many warps run side by side."""
    longest, mean = int(lengths.max()), float(lengths.mean())
    least = -(-longest // 16)
    sizes = [16 * tiles for tiles in range(least, max(least, min(most, TALLEST)) + 1)]
    if longest == int(lengths.min()):
        full = [size // longest * longest / size for size in sizes]
    else:  # items of many lengths fill nearly anything that holds some of them
        full = [1 - 0.5 * (mean / size) ** 2 for size in sizes]
    return max(zip(full, (-size for size in sizes), strict=True))[1] // -16


def _blocks(tall: int, wide: int) -> int:
    """How many blocks of threads a multiprocessor has registers for, with so many tiles a warp."""
    return next(blocks for tiles, blocks in ((6, 5), (10, 4), (15, 3), (MOST_TILES, 2)) if tall * wide <= tiles)


def _packed(
    vectors: Float[Tensor, "item place dim"],
    mask: Bool[Tensor, "item place"],
    lengths: Lengths,
    order: Int[np.ndarray, " chosen"],
    sizes: Int[np.ndarray, " chosen"],
) -> Float[Tensor, "row dim"]:
    """Items one after the other, in so many rows each: its own vectors, and the last of them again."""
    counts, places = lengths.counts, mask.shape[1]
    if (
        len(order) == len(counts)
        and (sizes == places).all()
        and (counts == places).all()
        and (np.diff(order) > 0).all()
    ):
        return vectors.flatten(0, 1)  # nothing to move
    first = order * places if lengths.first else (np.cumsum(counts) - counts)[order]
    facts = np.stack([sizes, np.cumsum(sizes) - sizes, first, counts[order] - 1])
    size, begin, source, last = torch.from_numpy(facts).to(mask.device, non_blocking=True)
    total = int(sizes.sum())
    whose = torch.repeat_interleave(torch.arange(len(order), device=mask.device), size, output_size=total)
    within = torch.minimum(torch.arange(total, device=mask.device) - begin[whose], last[whose])
    rows = source[whose] + within
    if not lengths.first:
        rows = mask.flatten().nonzero().squeeze(1)[rows]
    return vectors.flatten(0, 1).index_select(0, rows)


def _gram(
    vectors: Tensor, start: Tensor, length: Tensor, tiles: int, dtype: torch.dtype
) -> tuple[Float[Tensor, "item tile step g t half pair"], Float[Tensor, " item"]]:
    """Products of each item's vectors, as right factors of the tensor cores: a thread's two pairs of numbers.

    And what lengths are to be divided by. In float16, products are of vectors no longer than one.
    """
    wide, steps = 8 * tiles, -(-tiles // 2)
    place = torch.arange(wide, device=vectors.device)
    own = vectors[start[:, None] + torch.minimum(place, length[:, None] - 1)]
    real = place < length[:, None]
    size = torch.ones(len(start), device=vectors.device)
    if vectors.dtype == torch.float16:
        own = own.float()
        size = torch.linalg.vector_norm(own, dim=2).amax(dim=1).clamp(min=EPSILON).reciprocal()
        own = own * size[:, None, None]
    products = torch.bmm(own, own.transpose(1, 2)).mul_(real[:, :, None] & real[:, None])
    tall = F.pad(products, (0, 16 * steps - wide)).to(dtype)
    return tall.view(-1, tiles, 8, steps, 2, 4, 2).permute(0, 1, 3, 2, 5, 4, 6).contiguous(), size


def _fill(out: Tensor, asking: Asking, asked: Asked, form: AttentionForm, rows: int, launcher: Launcher) -> None:
    starts, columns = asking.starts, len(asked.vectors)
    bins = len(starts) - 1
    step = max(1, rows // (16 * asking.tiles))
    most = max(starts[min(b + step, bins)] - starts[b] for b in range(0, bins, step))
    buffer = asking.vectors.new_empty(most, -(-columns // 8) * 8)[:, :columns]
    half = buffer.dtype == torch.float16
    weights = torch.float16 if half and abs(form.sharpness) <= HALF_SHARP else torch.bfloat16
    options = (
        f"-DM_TILES={asking.tiles}",
        f"-DHALF={int(half)}",
        f"-DHALF_WEIGHTS={int(weights == torch.float16)}",
        f"-DCLIPPED={int(form.normaliser.startswith('clipped'))}",
        f"-DSUM={SUMS[form.normaliser]}",
        f"-DPOOL={POOLS.index(form.pool)}",
        f"-DSHIFTED={int(form.pool == 'logsumexp' and abs(form.pool_sharpness) > SHARP)}",
        f"-DCHUNK={CHUNK}",
    )
    start, length = asked.start, asked.length
    grams: list[tuple[Tensor, Tensor]] = []
    for first in range(0, bins, step):
        last = min(first + step, bins)
        some = asking.vectors[starts[first] : starts[last]]
        scores = torch.mm(some, asked.vectors.T, out=buffer[: len(some)])
        if not grams:  # made ready while a GPU is at the first product
            grams = [_gram(asked.vectors, start[who], length[who], wide, weights) for wide, who in asked.groups]
        for (wide, who), (gram, size) in zip(asked.groups, grams, strict=True):
            launcher(
                (*options, f"-DN_TILES={wide}", f"-DBLOCKS={_blocks(asking.tiles, wide)}"),
                (-(-(who.stop - who.start) // CHUNK), -(-(last - first) // WARPS)),
                (
                    scores,
                    ctypes.c_longlong(scores.stride(0)),
                    asking.start,
                    asking.slot_begin,
                    asking.slot_item,
                    asking.inverse,
                    *map(ctypes.c_int, (first, last, starts[first], starts[last])),
                    asked.start,
                    asked.length,
                    asked.number,
                    gram,
                    size,
                    *map(ctypes.c_int, (who.start, who.stop)),
                    out,
                    *map(ctypes.c_longlong, out.stride()),
                    *map(ctypes.c_float, (form.sharpness / math.log(2), form.slope, form.pool_sharpness)),
                ),
            )


def _launch(options: tuple[str, ...], grid: tuple[int, int], arguments: Sequence[Argument]) -> None:
    kernel = cuda_kernel("finish.cu", "finish", options, torch.cuda.current_device())
    launch(kernel, grid, 32 * WARPS, arguments)
