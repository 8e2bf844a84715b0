"""The bar that long work shows: how much is done, how fast, how long it will take; and notes to the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from saccade.core.text import escaped

Tell = Callable[[int, int], None]  # (how many are done, how many there are)


def rate(task: Task) -> float | None:
    """Items a second since the bar appeared. They come in batches, so the last few say nothing."""
    done = task.completed - task.fields.get("before", 0)
    return done / task.elapsed if done and task.elapsed else None


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = rate(task)
        return Text("–" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


class _Remaining(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed, left = rate(task), task.remaining
        wait = "-:--:--" if speed is None or left is None else str(timedelta(seconds=int(left / speed)))
        return Text(wait, style="progress.remaining")


@contextmanager
def progress_bar(title: str) -> Iterator[Tell]:
    """A bar on standard error, where that is a terminal, until the work ends.

    It appears with the first progress, so nothing flickers by when all was done before; what was done by then does not
    count into the rate.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), _Remaining())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: list[TaskID] = []

        def tell(done: int, total: int) -> None:
            if not tasks:
                tasks.append(progress.add_task(escape(escaped(title)), total=total, completed=done, before=done))
            progress.update(tasks[0], completed=done)

        yield tell


def one_by_one(tell: Tell, total: int) -> Callable[[], None]:
    """For work that only says "one more"."""
    done = count(1)
    return lambda: tell(next(done), total)


@cache
def note_once(text: str) -> None:
    """Something a user should know, on standard error, once in a process."""
    print(f"note: {text}", file=sys.stderr)
