"""How the work is cut: defaults that need no trial, and what a trial on this machine's GPU found, kept on disk.

`tune` times the candidates and writes the best for this GPU, precision and class of lengths to `kernels/cuts.json` in
Saccade's cache, from where every later call takes it: how fast a table is may hang on that file, what is in it never.
Large tables are tuned by themselves, once, in some seconds.
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


@dataclass(frozen=True)
class Cut:
    """How all pairs are cut for the epilogue kernel."""

    tiles: int = 10  # of 16 × 8 scores for a warp: few take few registers, so that many warps run side by side
    rows: int = 8192  # query rows whose scores are in memory at once


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
