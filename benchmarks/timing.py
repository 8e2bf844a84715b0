"""Seconds, bytes and what the machine can do at best: matrix products and reading memory."""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

SLAB = {"cuda": 5 << 30, "cpu": 1 << 28}
Run = Callable[[], Any]
Result = TypeVar("Result")


def best_of(
    device: str, named: Mapping[str, Run], runs: int = 5, limit: float = 12.0, warm: bool = False
) -> dict[str, float]:
    """The best time of each, in turns, so that all meet the same weather; each was run once before (or is `warm`).

    What takes less than a tenth of the slowest is run three times in a round: a gust that the slow one hardly feels
    would blow it over. After `limit` seconds no new round begins: what is slow is also steady.
    """
    for run in () if warm else named.values():
        run()
    wait(device)
    begun, found = time.perf_counter(), dict.fromkeys(named, float("inf"))
    for _ in range(runs):
        slowest = max(found.values())
        for name, run in named.items():
            for _ in range(3 if found[name] < slowest / 10 else 1):
                found[name] = min(found[name], seconds(device, run))
        if time.perf_counter() - begun > limit:
            break
    return found


def seconds(device: str, run: Run) -> float:
    """Once; on a GPU from the first of its work to the last, the host's delays in between included."""
    wait(device)
    if device == "cuda":
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def peak(device: str, run: Callable[[], Result]) -> tuple[Result, int | None]:
    """What a run gives, and the bytes by which its peak exceeds what was there before: PyTorch's on a GPU, else the
    process's (on Linux)."""
    if device == "cuda":
        wait(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = run()
        wait(device)
        return result, torch.cuda.max_memory_allocated() - before
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what earlier work left, or the growth would hide in it
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
        before = resident("VmRSS")
    except (OSError, AttributeError, StopIteration):
        return run(), None
    result = run()
    return result, max(0, resident("VmHWM") - before)


def resident(field: str) -> int:
    """A line of the kernel's account of this process, in bytes: VmRSS (now) or VmHWM (the peak)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def product(left: Tensor, right: Tensor) -> Run:
    """The product of all rows with all rows at its best: in slabs of at most `SLAB` bytes, written over each other.

    Rows of the result are as long as `left`, whose number of rows is even where pictures have 36 regions: matrix units
    want rows that begin at round addresses.
    """
    height = max(1, SLAB[left.device.type] // (len(left) * left.element_size()))
    slab = left.new_empty(min(height, len(right)), len(left))

    def run() -> None:
        for start in range(0, len(right), height):
            part = right[start : start + height]
            torch.mm(part, left.T, out=slab[: len(part)])

    return run


def bandwidth(device: str, gigabytes: float | None = None) -> float:
    """Bytes a second that a copy moves, those read and those written."""
    count = int((gigabytes or (4.0 if device == "cuda" else 0.25)) * 1e9)
    source = torch.ones(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * count / best_of(device, {"copy": lambda: target.copy_(source)})["copy"]


def busy_seconds(run: Run) -> float:
    """How long the GPU had something to do while this ran: the union of its kernels' times."""
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    on_gpu = [event for event in seen.events() or () if event.device_type == DeviceType.CUDA]
    work = [event for event in on_gpu if not getattr(event, "is_user_annotation", False)]  # a name spans gaps, too
    total, reached = 0.0, float("-inf")
    for start, end in sorted((event.time_range.start, event.time_range.end) for event in work):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total / 1e6


def machine(device: str) -> dict[str, str | int]:
    """What the figures were measured on."""
    found: dict[str, str | int] = {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cuda":
        with suppress(ImportError):
            import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]

            found["triton"] = str(triton.__version__)
        return {"device": torch.cuda.get_device_name(), **found}
    return {"device": processor(), "threads": torch.get_num_threads(), **found}


def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
