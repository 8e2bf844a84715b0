"""Work done ahead: in order, never more than asked for, and a fault reaches whoever waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from saccade.core.errors import SaccadeError
from saccade.core.threads import ahead, behind


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


def test_what_is_done_behind_comes_in_order_while_the_caller_makes_the_next() -> None:
    caller, next_begun = threading.current_thread(), threading.Event()

    def items() -> Iterator[int]:
        for n in range(5):
            assert threading.current_thread() is caller
            if n == 1:
                next_begun.set()
            yield n

    def work(n: int) -> int:
        assert threading.current_thread() is not caller
        if n == 0:
            assert next_begun.wait(10)  # the caller is at the next item, not waiting for this one
        return n * n

    assert list(behind(work, items())) == [0, 1, 4, 9, 16]
    assert list(behind(work, [])) == []


def test_nothing_is_begun_behind_after_a_failure() -> None:
    begun: list[int] = []

    def work(n: int) -> None:
        begun.append(n)
        if n == 2:
            raise SaccadeError("the disk is full")

    with pytest.raises(SaccadeError, match="the disk is full"):
        list(behind(work, range(10)))
    assert begun == [0, 1, 2]


def test_what_was_begun_behind_is_finished_when_the_caller_fails() -> None:
    done: list[int] = []

    def items() -> Iterator[int]:
        yield from range(3)
        raise SaccadeError("too little memory")

    with pytest.raises(SaccadeError, match="too little memory"):
        list(behind(done.append, items()))
    assert done == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("behind")]
