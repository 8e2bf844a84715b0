"""What a check found, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from saccade.data.store.manifest import Broken

BROKEN_SHOWN = 10


def report_faults(console: Console, path: Path, faults: Sequence[str], most: int) -> None:
    """One fault a line, at most `most` of them, and how many there are; exit code 2 if there is one."""
    for fault in faults[:most]:
        console.print(escape(fault), soft_wrap=True)
    if faults:
        count = f"more than {most}" if len(faults) > most else str(len(faults))
        console.print(escape(f"{path}: {count} problem{'s' if len(faults) > 1 else ''}"))
        raise typer.Exit(2)
    console.print(escape(f"{path}: no problems"))


def report_broken(broken: Sequence[Broken], total: int) -> None:
    """What could not be read, one sentence each, and the exit code that says so."""
    for one in broken[:BROKEN_SHOWN]:
        typer.echo(f"error: {one.reason}", err=True)
    if len(broken) > BROKEN_SHOWN:
        typer.echo(f"error: and {len(broken) - BROKEN_SHOWN:,} more", err=True)
    if broken:
        if total > 1:
            typer.echo(f"{len(broken):,} of {total:,} pictures could not be read", err=True)
        raise typer.Exit(2)
