"""Tables of figures in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

MAX_UNBROKEN = 8  # letters of a heading


def figure_table(title: str, headings: Sequence[str]) -> Table:
    """A first column of words, then figures, set to the right; short headings are kept whole in a narrow terminal."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column(escape(headings[0]), overflow="fold")
    for heading in headings[1:]:
        short = max(map(len, heading.split("\n"))) <= MAX_UNBROKEN
        table.add_column(escape(heading), justify="right", overflow="fold", no_wrap=short)
    return table
