"""The thread of a model: what gathers is answered together, and nobody pays for another's mistake."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from saccade.core.errors import SaccadeError
from saccade.serve.worker import Busy, Worker


def test_what_gathers_while_it_works_is_answered_together() -> None:
    sizes: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def answer(queries: Sequence[int]) -> list[int]:
        if queries[0] == 0:
            begun.set()
            assert go.wait(30)
        return [2 * query for query in queries]

    worker = Worker("toy", answer, batch=4, wait=0, seen=sizes.append)
    first = worker.ask(0)
    assert begun.wait(30)
    others = [worker.ask(n) for n in range(1, 7)]
    assert worker.waiting == 6
    go.set()
    assert [first.result(30), *(one.result(30) for one in others)] == [0, 2, 4, 6, 8, 10, 12]
    assert sizes == [1, 4, 2]
    worker.close()


def test_one_bad_query_spoils_no_other() -> None:
    begun, go = threading.Event(), threading.Event()

    def answer(queries: Sequence[int]) -> list[int]:
        if queries[0] == 0:
            begun.set()
            assert go.wait(30)
        if 2 in queries:
            raise SaccadeError("two is no query")
        return list(queries)

    worker = Worker("toy", answer, batch=8, wait=0)
    worker.ask(0)
    assert begun.wait(30)
    one, two, three = (worker.ask(n) for n in (1, 2, 3))
    go.set()
    assert (one.result(30), three.result(30)) == (1, 3)
    with pytest.raises(SaccadeError, match="two is no query"):
        two.result(30)
    worker.close()


def test_a_client_that_left_costs_nothing_and_a_full_queue_is_said() -> None:
    begun, go = threading.Event(), threading.Event()
    asked: list[int] = []

    def answer(queries: Sequence[int]) -> list[int]:
        asked.extend(queries)
        begun.set()
        assert go.wait(30)
        return list(queries)

    worker = Worker("toy", answer, wait=0, waiting=2)
    worker.ask(0)
    assert begun.wait(30)
    left, last = worker.ask(1), worker.ask(2)
    with pytest.raises(Busy, match="too many"):
        worker.ask(3)
    assert left.cancel()
    go.set()
    assert last.result(30) == 2
    worker.close()
    assert asked == [0, 2]


def test_a_worker_that_is_closed_finishes_what_waits() -> None:
    begun, go = threading.Event(), threading.Event()

    def answer(queries: Sequence[int]) -> list[int]:
        begun.set()
        assert go.wait(30)
        return list(queries)

    worker = Worker("toy", answer, batch=1, wait=0)
    asked = [worker.ask(n) for n in range(3)]
    called = worker.call(lambda: "called")
    assert begun.wait(30)
    closing = threading.Thread(target=worker.close)
    closing.start()
    go.set()
    closing.join(30)
    assert [one.result(0) for one in asked] == [0, 1, 2]
    assert called.result(0) == "called"
    with pytest.raises(Busy, match="stopping"):
        worker.ask(4)


def test_what_fails_belongs_to_whoever_asked() -> None:
    worker: Worker[int, int] = Worker("toy", lambda queries: [1 // query for query in queries], wait=0)
    with pytest.raises(ZeroDivisionError):
        worker.ask(0).result(30)
    assert worker.ask(1).result(30) == 1
    worker.close()
