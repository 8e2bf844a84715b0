"""Work done ahead: in order, never more than asked for, and a fault reaches whoever waits."""

from __future__ import annotations

import threading

import pytest

from saccade.core.errors import SaccadeError
from saccade.core.threads import ahead


@pytest.mark.parametrize(("workers", "most"), [(0, 0), (1, 1), (1, 3), (1, 50), (3, 4)])
def test_results_come_in_order_and_never_more_than_asked_ahead(workers: int, most: int) -> None:
    made: list[int] = []

    def make(step: int) -> int:
        made.append(step)
        return step

    for count, step in enumerate(ahead(make, range(4, 20), workers, most), start=1):
        assert step == 3 + count
        assert len(made) <= count + most
    assert sorted(made) == list(range(4, 20))


def test_a_failure_in_the_background_reaches_the_loop_and_leaves_no_thread() -> None:
    def make(step: int) -> int:
        if step == 3:
            raise SaccadeError("picture 3 is broken")
        return step

    with pytest.raises(SaccadeError, match="picture 3 is broken"):
        list(ahead(make, range(10), workers=1, most=2))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
