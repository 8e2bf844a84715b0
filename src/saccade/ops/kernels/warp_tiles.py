"""All pairs of items in 16 bits by `finish.cu`: a matrix product for some query rows at a time, finished warp by warp.

Context items of one number of tiles (of 8 columns) go through one kernel, each warp with a bin of queries
(`warp_packing.py`).
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.kernels import OLDEST
from saccade.ops.kernels.cuda_source import Argument, cuda_kernel, have_nvrtc, launch
from saccade.ops.kernels.packing import fill_empty
from saccade.ops.kernels.tuning import Cut, known_cut, tune
from saccade.ops.kernels.warp_packing import EPSILON, TALLEST, Asked, Asking, lengths_of, pack_context, pack_queries
from saccade.ops.pairwise import AttentionForm

WARPS = 4  # of a block of threads: as in finish.cu
MOST_TILES = {7: 21, 16: 32}  # of 16 × 8 scores for a warp, by how many of them lie side by side: what registers hold
COLUMNS = 1 << 24  # of a product at most: rows of a bin are told apart by 32 bits
CHUNK = 16  # items of the context that a warp goes through
LARGE = 1 << 31  # scores of a table that is worth a trial
SAMPLE = 32768  # query rows of the trial
SHARP = 30.0  # up to here exp needs no maximum
HALF_SHARP = 10.0  # up to here exp is a float16
SUMS = {"clipped_l2": 2, "l2": 2, "clipped_l1": 1, "l1": 1}
DTYPES = (torch.bfloat16, torch.float16)
POOLS = ("logsumexp", "mean", "max", "sum")

Launcher = Callable[[tuple[str, ...], tuple[int, int], Sequence[Argument]], None]


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
    wide, tall = -(-context_places // 8), -(-query_places // 16)
    most = next((most for widest, most in MOST_TILES.items() if wide <= widest), 0)
    fits = 0 < wide * tall <= most and tall <= TALLEST
    return fits and torch.cuda.get_device_capability(device) >= OLDEST and have_nvrtc()


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
    if len(context) > (part := max(1, COLUMNS // context.shape[1])):
        pieces = (slice(first, first + part) for first in range(0, len(context), part))
        sides = ((queries, query_mask, context[piece], context_mask[piece]) for piece in pieces)
        return torch.cat([warp_similarity(*side, form, dtype, budget, cut, launcher) for side in sides], dim=1)
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
        asking = pack_queries(queries.to(dtype), query_mask, asking_lengths, asked.plan.groups[-1][0], cut.tiles)
        row = len(asked.vectors) * dtype.itemsize
        rows = cut.rows if budget is None else max(16 * asking.plan.tiles, min(cut.rows, budget // row))
        _fill(out, asking, asked, form, rows, launcher)
    return fill_empty(out, form, asking_lengths.empty, asked_lengths.empty, query_mask.sum(dim=1))


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


def _fill(out: Tensor, asking: Asking, asked: Asked, form: AttentionForm, rows: int, launcher: Launcher) -> None:
    own, other, columns = asking.plan, asked.plan, len(asked.vectors)
    starts = own.starts
    bins = len(starts) - 1
    step = max(1, rows // (16 * own.tiles))
    most = max(starts[min(b + step, bins)] - starts[b] for b in range(0, bins, step))
    buffer = asking.vectors.new_zeros(most + 16 * own.tiles, columns)  # a bin that is not full reads on into the next
    half = buffer.dtype == torch.float16
    weights = torch.float16 if half and abs(form.sharpness) <= HALF_SHARP else torch.bfloat16
    options = (
        f"-DM_TILES={own.tiles}",
        f"-DHALF={int(half)}",
        f"-DHALF_WEIGHTS={int(weights == torch.float16)}",
        f"-DCLIPPED={int(form.normaliser.startswith('clipped'))}",
        f"-DSUM={SUMS[form.normaliser]}",
        f"-DPOOL={POOLS.index(form.pool)}",
        f"-DSHIFTED={int(form.pool == 'logsumexp' and abs(form.pool_sharpness) > SHARP)}",
        f"-DCHUNK={CHUNK}",
    )
    start, length = other.start, other.length
    grams: list[tuple[Tensor, Tensor]] = []
    for first in range(0, bins, step):
        last = min(first + step, bins)
        some = asking.vectors[starts[first] : starts[last]]
        scores = torch.mm(some, asked.vectors.T, out=buffer[: len(some)])
        if not grams:  # made ready while a GPU is at the first product
            grams = [_gram(asked.vectors, start[who], length[who], wide, weights) for wide, who in other.groups]
        for (wide, who), (gram, size) in zip(other.groups, grams, strict=True):
            launcher(
                (*options, f"-DN_TILES={wide}", f"-DBLOCKS={_blocks(own.tiles, wide)}"),
                (-(-(who.stop - who.start) // CHUNK), -(-(last - first) // WARPS)),
                (
                    scores,
                    ctypes.c_longlong(scores.stride(0)),
                    own.start,
                    own.slot_begin,
                    own.slot_item,
                    asking.inverse,
                    *map(ctypes.c_int, (first, last, starts[first], starts[last])),
                    other.start,
                    other.length,
                    other.number,
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
