"""What a check found, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape


def report_faults(console: Console, path: Path, faults: Sequence[str], most: int) -> None:
    """One fault a line, at most `most` of them, and how many there are; exit code 2 if there is one."""
    for fault in faults[:most]:
        console.print(escape(fault), soft_wrap=True)
    if faults:
        count = f"more than {most}" if len(faults) > most else str(len(faults))
        console.print(escape(f"{path}: {count} problem{'s' if len(faults) > 1 else ''}"))
        raise typer.Exit(2)
    console.print(escape(f"{path}: no problems"))
