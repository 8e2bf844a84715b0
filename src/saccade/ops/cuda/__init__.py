"""The epilogue of SCAN's matrix product in CUDA C++, for tables in 16 bits: the quickest way to one.

`attention_epilogue.cu` is the kernel, one warp at a time; `epilogue.py` how items lie in memory, how the work is cut
and how it is called; `nvrtc.py` how it is compiled.
"""

from __future__ import annotations

import torch

from saccade.ops.cuda.nvrtc import nvrtc_missing
from saccade.ops.form import REDUCED, AttentionForm
from saccade.ops.gpu import kernels_unavailable

MAX_BIN_TILES = 7  # tiles of 16 rows in a bin: larger bins are hardly fuller
MAX_WARP_TILES = {7: 21, 16: 32}  # of 16 × 8 scores that registers hold, by how many of them lie side by side


def unavailable() -> str | None:
    """Why the kernel cannot run on this machine; None if it can."""
    return kernels_unavailable() or nvrtc_missing()


def epilogue_refuses(queries: int, parts: int, form: AttentionForm, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot do items of up to so many vectors; None if it can."""
    if form.choice != "attend" or not form.bounded:
        return "it knows attention with a norm and a sharpness of at most 30"
    if dtype not in REDUCED:
        return "the product is not in 16 bits"
    wide, tall = -(-parts // 8), -(-queries // 16)
    most = next((most for widest, most in MAX_WARP_TILES.items() if wide <= widest), 0)
    fits = 0 < wide * tall <= most and tall <= MAX_BIN_TILES
    return None if fits else f"registers do not hold {queries} queries × {parts} context vectors"
