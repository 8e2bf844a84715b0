"""How the work is cut: defaults that need no trial, and what a trial on this machine's GPU found, kept on disk.

`tune` times the candidates and writes the best for this GPU, precision and class of lengths to `kernels/tilings.json`
in Saccade's cache, from where every later call takes it. It takes some seconds, once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from saccade.files import cache_folder, write_json

LONGEST = 256  # places in the largest bin: longer items are not for the kernels


@dataclass(frozen=True)
class Tiling:
    """How all pairs are cut into tiles."""

    queries: int = 128  # places in a bin of queries
    context: int = 128  # places in a bin of the context
    slots: int = 16  # items that a bin can have
    wide: int = 64  # rows of the product that sums within query items: `slots` or, on a Hopper GPU, rather 64
    warps: int = 8
    registers: int | None = None  # at most, for a thread: fewer let more tiles run side by side
    stages: int = 2  # reads that are under way at once
    loop: int = 8  # bins of queries that one program goes through
    rows: int = 2048  # query rows whose scores are in memory at once
    fused: bool = False  # scores and all the rest in one kernel
    depth: int = 64  # fused: dimensions per step of the product
    group: int = 8  # fused: bins of queries that run side by side
    described: bool = False  # fused: vectors read by the copy engine

    def holding(self, query_places: int, context_places: int) -> Tiling:
        """With bins that hold items of these sizes."""
        queries, context = (
            max(size, 1 << (places - 1).bit_length())
            for size, places in ((self.queries, query_places), (self.context, context_places))
        )
        return replace(self, queries=queries, context=context)


CANDIDATES = (
    Tiling(128, 128, warps=8),
    Tiling(64, 128, warps=4, loop=16),
    Tiling(64, 128, warps=4, loop=16, registers=168),
    Tiling(128, 64, warps=4),
    Tiling(128, 64, warps=8),
    Tiling(64, 64, warps=4, loop=16),
    Tiling(256, 64, warps=8, loop=4),
    Tiling(128, 128, warps=8, stages=1),
    Tiling(128, 128, warps=8, stages=3, fused=True),
    Tiling(128, 128, warps=8, stages=4, fused=True, described=True),
)
REDUCED_DEFAULT = Tiling(128, 128, warps=8)
EXACT_DEFAULT = Tiling(64, 64, warps=4, loop=4)
GRADIENT_DEFAULT = Tiling(64, 64, warps=4)


def tiling_for(query_places: int, context_places: int, dtype: torch.dtype, device: torch.device) -> Tiling:
    """What was found best for such items on such a device, or else the default."""
    exact = dtype not in (torch.bfloat16, torch.float16)
    found = _known().get(_key(query_places, context_places, dtype, device))
    return (found or (EXACT_DEFAULT if exact else REDUCED_DEFAULT)).holding(query_places, context_places)


def tune(
    run: Callable[[Tiling], object],
    queries: Tensor,
    context: Tensor,
    dtype: torch.dtype,
    candidates: tuple[Tiling, ...] = CANDIDATES,
    repeats: int = 3,
) -> dict[Tiling, float]:
    """Seconds that `run` takes with each candidate that works; the best is remembered for items of these sizes."""
    times: dict[Tiling, float] = {}
    for candidate in candidates:
        tiling = candidate.holding(queries.shape[1], context.shape[1])
        try:
            run(tiling)  # compiles it
        except Exception:  # a tile may be too large for the machine: that is what is being tried
            continue
        times[tiling] = min(_seconds(run, tiling) for _ in range(repeats))
    if times:
        best = min(times, key=lambda tiling: times[tiling])
        entries = {key: asdict(tiling) for key, tiling in _known().items()}
        entries[_key(queries.shape[1], context.shape[1], dtype, queries.device)] = asdict(best)
        write_json(_file(), entries)
        _known.cache_clear()
    return times


def _seconds(run: Callable[[Tiling], object], tiling: Tiling) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run(tiling)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def _file() -> Path:
    return cache_folder() / "kernels" / "tilings.json"


@cache
def _known() -> dict[str, Tiling]:
    """Earlier trials; a file that cannot be read, or of another version, is as good as none."""
    try:
        return {key: Tiling(**fields) for key, fields in json.loads(_file().read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _key(query_places: int, context_places: int, dtype: torch.dtype, device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    sizes = "x".join(str(1 << (places - 1).bit_length()) for places in (query_places, context_places))
    return f"{name} {str(dtype).removeprefix('torch.')} {sizes}"
