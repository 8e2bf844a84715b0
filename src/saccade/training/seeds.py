"""What is random in a run: the generators, set from one seed, kept and put back; which items come at which step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from saccade.core.errors import SaccadeError

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


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the items in one epoch, from (seed, epoch) alone.

    Sorting raw generator output, rather than calling a `permutation` method whose algorithm may change, gives the same
    order with every version of NumPy.
    """
    keys = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(count)
    return np.argsort(keys, kind="stable")


class BatchSampler:
    """Cuts each epoch's order into batches, and each batch into one equal share per rank."""

    def __init__(
        self, count: int, batch_size: int, seed: int, drop_last: bool = True, rank: int = 0, world_size: int = 1
    ) -> None:
        if batch_size % world_size:
            raise SaccadeError(f"batch_size must be a multiple of the {world_size} devices, not {batch_size}")
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.rank, self.world_size = rank, world_size
        rest = 0 if drop_last else (count % batch_size) // world_size  # every rank needs as many items as the others
        self.steps_per_epoch = count // batch_size + (rest > 0)
        if self.steps_per_epoch == 0:
            advice = "lower batch_size or set drop_last=false" if drop_last else "there is nothing to train on"
            raise SaccadeError(f"{count} training items do not fill one batch of {batch_size}: {advice}")
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def indices(self, step: int) -> list[int]:
        """This rank's items at `step`, counted from the start of training."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, epoch_order(self.count, self.seed, epoch)
        batch = self._order[position * self.batch_size : (position + 1) * self.batch_size]
        share = len(batch) // self.world_size
        own: list[int] = batch[self.rank * share : (self.rank + 1) * share].tolist()
        return own
