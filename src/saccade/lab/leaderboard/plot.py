"""The trade in one picture: how well a model finds against how long a query takes, one dot a row of the table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.transforms import Bbox

from saccade.lab.leaderboard.board import Board, Row
from saccade.lab.reports import FAINT, INK, colour, new_figure, quiet, save_figure

MAX_NAME_LETTERS = 44
HEIGHTS = (0, 9, -9, 18, -18, 27, -27)  # of a name above its dot, in points, the best first


def draw_board(board: Board, path: Path | str) -> None:
    """Single models as dots, bars from mean − sd to mean + sd; ensembles as rings. A colour is a system."""
    figure = new_figure((7.2, 4.4), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    systems = sorted({row.system for row in board.of_kind("single")})
    colours = {system: colour(i) for i, system in enumerate(systems)}
    for row in board.rows:
        _draw_dot(axes, row, colours.get(row.system, FAINT))
    axes.margins(x=0.2, y=0.1)
    axes.set_xlabel("milliseconds a query", color=INK, fontsize=9)
    axes.set_ylabel("rsum", color=INK, fontsize=9)
    axes.set_title(f"{board.data}, {board.split}: {board.images:,} pictures", loc="left", fontsize=10, color=INK)
    axes.text(1, 1.01, board.device, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=FAINT)
    axes.xaxis.set_major_formatter(_plain_numbers())
    axes.xaxis.set_minor_formatter(_plain_numbers())
    quiet(axes)
    figure.draw_without_rendering()  # only now is it known where the dots lie
    _write_names(figure, axes, board.rows)
    save_figure(figure, path)


def _draw_dot(axes: Any, row: Row, ink: str) -> None:
    values = [one["rsum"] for one in row.figures]
    axes.errorbar(
        row.cost.query_ms,
        row.rsum,
        yerr=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        fmt="o",
        color=ink,
        markersize=7,
        markerfacecolor=ink if row.kind == "single" else "white",
        elinewidth=1.4,
        zorder=3,
    )


def _write_names(figure: Any, axes: Any, rows: Sequence[Row]) -> None:
    """Each beside its dot, at the first place that no dot and no other name has taken."""
    dots = [axes.transData.transform((row.cost.query_ms, row.rsum)) for row in rows]
    taken = [Bbox.from_bounds(x - 7, y - 7, 14, 14) for x, y in dots]
    frame = axes.get_window_extent()
    for row in rows:
        name, ink = (row.name, INK) if row.kind == "single" else (row.variant, FAINT)
        text = axes.annotate(
            name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…",
            (row.cost.query_ms, row.rsum),
            xytext=(7, 0),
            textcoords="offset points",
            fontsize=7.5,
            va="center",
            color=ink,
        )
        text.set_in_layout(False)
        for height, side in product(HEIGHTS, ("left", "right")):
            text.set_ha(side)
            text.set_position((7 if side == "left" else -7, height))
            box = text.get_window_extent(figure.canvas.get_renderer())
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)


def _plain_numbers() -> Any:
    """1, 2, 5, 10 … and not 10⁰; of the ticks between, two a decade are named."""
    from matplotlib.ticker import FuncFormatter

    def write(value: float, _: int) -> str:
        first = f"{value:e}"[0]
        return f"{value:g}" if first in "125" else ""

    return FuncFormatter(write)
