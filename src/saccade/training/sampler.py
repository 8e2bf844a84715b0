"""Which items make up which step: a pure function of the seed and the step, so a run can be taken up anywhere."""

from __future__ import annotations

import numpy as np

from saccade.core.errors import SaccadeError


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
