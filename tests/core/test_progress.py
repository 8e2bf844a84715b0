"""The bar of long work: how fast, of items that come in batches."""

from __future__ import annotations

from rich.progress import Task, TaskID

from saccade.core.progress import rate


def test_a_batch_that_comes_at_once_does_not_look_quick() -> None:
    now = 100.0
    task = Task(TaskID(0), "scoring", total=1000, completed=40, fields={"before": 40}, _get_time=lambda: now)
    task.start_time = now
    assert rate(task) is None
    now = 108.0
    for done in range(41, 57):
        task.completed = done
    assert rate(task) == 2.0
