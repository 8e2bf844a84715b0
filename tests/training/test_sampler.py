from __future__ import annotations

import pytest

from saccade.core.errors import SaccadeError
from saccade.training.seeds import BatchSampler, epoch_order

PINNED = [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_order_depends_on_seed_and_epoch_alone_and_is_the_same_everywhere() -> None:
    """The numbers are pinned: a run must be resumable with another version of NumPy."""
    assert epoch_order(10, seed=0, epoch=0).tolist() == PINNED
    assert epoch_order(10, 0, 1).tolist() != PINNED
    assert epoch_order(10, 1, 0).tolist() != PINNED
    assert sorted(epoch_order(1000, 3, 4)) == list(range(1000))


def test_an_epoch_visits_each_item_once() -> None:
    sampler = BatchSampler(22, batch_size=5, seed=0, drop_last=False)
    assert sampler.steps_per_epoch == 5
    for epoch in range(3):
        steps = range(epoch * 5, epoch * 5 + 5)
        assert sorted(index for step in steps for index in sampler.indices(step)) == list(range(22))
    assert BatchSampler(22, batch_size=5, seed=0).steps_per_epoch == 4


def test_steps_can_be_asked_for_in_any_order() -> None:
    forward, backward = BatchSampler(22, 5, seed=0), BatchSampler(22, 5, seed=0)
    ahead = [forward.indices(step) for step in range(12)]
    assert ahead == [backward.indices(step) for step in reversed(range(12))][::-1]


@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_the_batches_of_one_process_equally(drop_last: bool) -> None:
    whole = BatchSampler(23, 6, seed=0, drop_last=drop_last)
    ranks = [BatchSampler(23, 6, seed=0, drop_last=drop_last, rank=rank, world_size=3) for rank in range(3)]
    for step in range(2 * whole.steps_per_epoch):
        shares = [rank.indices(step) for rank in ranks]
        assert len({len(share) for share in shares}) == 1
        joined = [index for share in shares for index in share]
        assert joined == whole.indices(step)[: len(joined)]
        assert len(whole.indices(step)) - len(joined) < 3


def test_too_few_items_and_uneven_shares_are_refused() -> None:
    with pytest.raises(SaccadeError, match="12 training items do not fill one batch of 128: lower batch_size"):
        BatchSampler(12, 128, seed=0)
    with pytest.raises(SaccadeError, match="batch_size must be a multiple of the 3 devices, not 128"):
        BatchSampler(1000, 128, seed=0, world_size=3)
