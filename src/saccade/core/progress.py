"""The bar that long work shows: how much is done, how fast, how long it will take; and notes to the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    TimeRemainingColumn,
)
from rich.text import Text

Tell = Callable[[int, int], None]  # (how many are done, how many there are)


class _Rate(ProgressColumn):
    """Items a second, of the last while."""

    def render(self, task: Task) -> Text:
        return Text("–" if task.speed is None else f"{task.speed:.1f}/s", style="progress.data.speed")


@contextmanager
def progress_bar(title: str) -> Iterator[Tell]:
    """A bar on standard error, where that is a terminal, until the work ends.

    It appears with the first progress, so nothing flickers by when all was done before; what was done by then does not
    count into the rate.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: list[TaskID] = []

        def tell(done: int, total: int) -> None:
            if not tasks:
                tasks.append(progress.add_task(escape(title), total=total, completed=done))
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
