"""GPU kernels, in Triton and CUDA C++. Modules that hold kernels are imported by the functions that call them.

- `finish.cu` all that follows the matrix product, in 16 bits and one warp at a time: the quickest way to a table;
  `warp_tiles.py` how it is called, `warp_packing.py` how its items lie, `cuda_source.py` how it is compiled;
- `tile.py` what happens to one tile of scores in Triton, `forward.py` and `backward.py` the kernels made of it, for all
  forms, precisions and for gradients; `similarity.py` and `autograd.py` how they are called;
- `packing.py` items of unequal length in full tiles, `tuning.py` how the work is cut;
- `block_cosines.py` GSMN's matching of nodes; `blend.py` and `remember.py` IMRAM's looks and memory;
- `maxsim.py`, `maxsim_wide.py`, `maxsim_words.py`, `maxsim_lists.py` late interaction over region codes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

OLDEST = (8, 0)  # what a GPU must be capable of: products of bfloat16


def kernels_on() -> bool:
    """Whether a GPU may use them: unless SACCADE_KERNELS=0 says otherwise."""
    return os.environ.get("SACCADE_KERNELS") != "0"


def kernels_wanted(device: torch.device) -> bool:
    """Whether this GPU should use those in Triton."""
    able = device.type != "cuda" or torch.cuda.get_device_capability(device) >= OLDEST
    return kernels_on() and able and have_triton()


def on_gpu_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Kernels are launched on the present GPU, which in here is that of a tensor."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@cache
def have_triton() -> bool:
    """Whether kernels can be compiled; where a GPU is asked for and they cannot, one line says what would help."""
    if importlib.util.find_spec("triton") is not None:
        return True
    print("note: Triton is not installed: the GPU takes slower paths (`pip install triton`)", file=sys.stderr)
    return False


__all__ = ["OLDEST", "have_triton", "kernels_on", "kernels_wanted", "on_gpu_of"]
