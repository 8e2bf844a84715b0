"""How the work is cut: defaults that need no trial, and what a trial on this machine's GPU found, kept on disk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tiling:
    """How all pairs are cut into tiles."""

    queries: int = 128  # places in a bin of queries
    context: int = 128  # places in a bin of the context
    slots: int = 16  # items that a bin can have
    wide: int = 64  # rows of the product that sums within query items: `slots` or, on a Hopper GPU, rather 64
    warps: int = 8
    stages: int = 2  # reads that are under way at once
    loop: int = 8  # bins of queries that one program goes through
    rows: int = 2048  # query rows whose scores are in memory at once
    fused: bool = False  # scores and all the rest in one kernel
    depth: int = 64  # fused: dimensions per step of the product
    group: int = 8  # fused: bins of queries that run side by side
    described: bool = False  # fused: vectors read by the copy engine
