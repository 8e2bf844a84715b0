"""What a GPU, and this machine for it, can offer: the reasons that rows of the dispatch tables share."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

MIN_CAPABILITY = (8, 0)  # of a GPU: products of bfloat16


def gpu_unavailable() -> str | None:
    """Why nothing can run on a GPU of this machine; None if something can."""
    return None if torch.cuda.is_available() else "there is no CUDA device"


def kernels_unavailable() -> str | None:
    """The same of kernels of our own."""
    return "SACCADE_KERNELS=0" if os.environ.get("SACCADE_KERNELS") == "0" else gpu_unavailable()


def triton_unavailable() -> str | None:
    """The same of kernels in Triton."""
    return kernels_unavailable() or _triton_missing()


def refuses(device: torch.device) -> str | None:
    """Why a device cannot run kernels; None if it can."""
    if device.type != "cuda":
        return "the vectors are not on a GPU"
    if torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        return "the GPU is older than compute capability {}.{}".format(*MIN_CAPABILITY)
    return None


def on_gpu_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Kernels are launched on the current GPU, which in here is that of a tensor."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


@cache
def _triton_missing() -> str | None:
    """Where there is a GPU and no Triton, one line says what would help."""
    if importlib.util.find_spec("triton") is not None:
        return None
    print("note: Triton is not installed: the GPU takes slower paths (`pip install triton`)", file=sys.stderr)
    return "Triton is not installed (`pip install triton`)"
