"""The random state of a process: set from one seed, taken down as plain values, and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_RANK_STRIDE = 1_000_003  # a prime, so that neighbouring seeds on neighbouring ranks do not meet


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python, NumPy and PyTorch (every device); each rank gets its own stream, so that dropout differs."""
    value = (seed + rank * _RANK_STRIDE) % 2**32
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002 (tasks and libraries may draw from the global generator)
    torch.manual_seed(value)


def random_state() -> dict[str, Any]:
    """The generators of Python, NumPy, PyTorch's CPU and this process's GPU, as tensors and plain values."""
    _, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
    state = {
        "python": random.getstate(),
        "numpy": (torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(gauss)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Whatever the block draws, the random state afterwards is as before."""
    state = random_state()
    try:
        yield
    finally:
        restore_random_state(state)
