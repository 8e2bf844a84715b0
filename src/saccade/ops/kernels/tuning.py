"""How the work is cut: defaults that need no trial, and what a trial on this machine's GPU found, kept on disk.

`tune` times the candidates and writes the best for this GPU, precision and class of lengths to `kernels/cuts.json` in
Saccade's cache, from where every later call takes it. Large tables are tuned by themselves, once, in some seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from saccade.core.files import cache_folder, write_json

FEW = 1 << 27  # scores with which, padding and all, a GPU is done sooner than a host has packed a batch without padding
LONGEST = 64  # vectors of an item: with larger bins, or with 8 warps, Triton's kernels went wrong on an H200


@dataclass(frozen=True)
class Tiling:
    """How Triton's kernels cut all pairs into tiles."""

    queries: int = 64  # places in a bin of queries
    context: int = 64  # places in a bin of the context
    slots: int = 16  # items that a bin can have
    wide: int = 64  # rows of the product that sums within query items: `slots` or, on a Hopper GPU, rather 64
    warps: int = 4
    stages: int = 2  # reads that are under way at once
    loop: int = 8  # bins of queries that one program goes through
    rows: int = 2048  # query rows whose scores are in memory at once


@dataclass(frozen=True)
class Cut:
    """How `warp_tiles` cuts them."""

    tiles: int = 10  # of 16 × 8 scores for a warp: few take few registers, so that many warps run side by side
    rows: int = 8192  # query rows whose scores are in memory at once


DEFAULT = Tiling(loop=4)
GRADIENT_DEFAULT = Tiling(rows=16384)  # a batch in one piece
CUTS = tuple(Cut(tiles, rows) for tiles in (10, 15, 21) for rows in (4096, 8192))


def known_cut(queries: Tensor, context: Tensor, dtype: torch.dtype) -> Cut | None:
    """What an earlier trial found best for such items on such a device."""
    return _known().get(_key(queries, context, dtype))


def tune(
    run: Callable[[Cut], object],
    queries: Tensor,
    context: Tensor,
    dtype: torch.dtype,
    candidates: Sequence[Cut] | None = None,
    repeats: int = 7,
) -> Cut:
    """The candidate with which `run` takes least time; it is remembered for items of these sizes.

    They take turns, so that a GPU that warms up and slows down does it to all of them.
    """
    for cut in (candidates := candidates or CUTS):
        run(cut)  # compiles it
    times = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats):
        for cut in candidates:
            times[cut] = min(times[cut], _seconds(run, cut))
    best = min(times, key=lambda cut: times[cut])
    entries = {key: asdict(cut) for key, cut in _known().items()}
    entries[_key(queries, context, dtype)] = asdict(best)
    write_json(_file(), entries)
    _known.cache_clear()
    return best


def _seconds(run: Callable[[Cut], object], cut: Cut) -> float:
    _wait()
    start = time.perf_counter()
    run(cut)
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _file() -> Path:
    return cache_folder() / "kernels" / "cuts.json"


@cache
def _known() -> dict[str, Cut]:
    """Earlier trials; a file that cannot be read, or of another version, is as good as none."""
    try:
        return {key: Cut(**fields) for key, fields in json.loads(_file().read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _key(queries: Tensor, context: Tensor, dtype: torch.dtype) -> str:
    name = torch.cuda.get_device_name(queries.device) if queries.is_cuda else queries.device.type
    sizes = "x".join(str(1 << (side.shape[1] - 1).bit_length()) for side in (queries, context))
    return f"{name} {str(dtype).removeprefix('torch.')} {sizes}"
