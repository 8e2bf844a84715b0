"""The leaderboard as a page of the docs, as values, as a picture, and as cells that page and terminal share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.transforms import Bbox

from saccade.core.errors import SaccadeError
from saccade.lab.leaderboard.board import Board, BoardRow
from saccade.lab.reports import FAINT, INK, colour, markdown_table, new_figure, quiet, save_figure
from saccade.metrics import mean_and_spread
from saccade.tasks.evaluator import Benchmark

LINE_WIDTH = 120  # of the page
MAX_NAME_LETTERS = 44
HEIGHTS = (0, 9, -9, 18, -18, 27, -27)  # of a name above its dot, in points, the best first


def cost_cells(row: BoardRow, benchmark: Benchmark[Any, Any]) -> list[str]:
    costs = ((column, row.cost[name]) for name, column in benchmark.costs.items())
    return ["–" if value is None else column.show(value) for column, value in costs]


def best_cells(rows: Sequence[BoardRow], metrics: Iterable[str]) -> set[tuple[int, int]]:
    """Which cells (row, column) hold the highest mean of their metric."""
    if not rows:
        return set()
    means = np.array([[row.mean(metric) for metric in metrics] for row in rows])
    best = np.isclose(means, means.max(axis=0))
    return {(int(row), int(column)) for row, column in np.argwhere(best)}


def board_page(board: Board, command: str, plot: str | None = None) -> str:
    """Markdown: what was compared, the two tables, and what their columns mean."""
    several = any(len(row.figures) > 1 for row in board.rows)
    benchmark = board.benchmark
    intro = f"{board.images:,} pictures, {board.texts:,} texts. {benchmark.unit}"
    intro += ", mean ± standard deviation over seeds. " if several else ". "
    intro += "The best of each column is bold, single models and ensembles apart."
    if board.chosen_here:
        intro += " The models were chosen among their epochs by this very split, so that the figures are a little kind."
    parts = [
        f"# Leaderboard: {board.data}, {board.split}",
        fill(intro, LINE_WIDTH),
        markdown_table(["system", "variant", "seeds", *benchmark.figures.values()], _figure_lines(board), words=2),
        *([f"![{board.metric} against {benchmark.time[1]}]({plot})"] if plot else []),
        f"What it costs, measured on {board.device}:",
        markdown_table(
            ["system", "variant", *(column.heading for column in benchmark.costs.values())],
            [[row.system, row.variant, *cost_cells(row, benchmark)] for row in board.rows],
            words=2,
        ),
        _legend(board),
        f"Made by `{command}`.",
    ]
    return "\n\n".join(parts) + "\n"


def _figure_lines(board: Board) -> list[list[str]]:
    lines, metrics = [], list(board.benchmark.figures)
    for kind in ("single", "ensemble"):
        rows = board.of_kind(kind)
        best = best_cells(rows, metrics)
        for i, row in enumerate(rows):
            cells = [mean_and_spread([one[metric] for one in row.figures]) for metric in metrics]
            cells = [f"**{cell}**" if (i, j) in best else cell for j, cell in enumerate(cells)]
            lines.append([row.system, row.variant, str(len(row.figures)), *cells])
    return [*lines, ["chance", "", "", *(f"{board.chance[metric]:.1f}" for metric in metrics)]]


def _legend(board: Board) -> str:
    meanings = {
        "variant": "the settings in which runs differ from their system's recipe, where a system has several variants"
    }
    for column in board.benchmark.costs.values():
        if column.meaning:
            meanings[column.heading] = column.meaning.format(pictures=f"{board.images:,}", texts=f"{board.texts:,}")
    if board.of_kind("ensemble"):
        meanings["ensemble"] = (
            f"{board.benchmark.ensembles}; × counts models that differ in their seed, + joins one model of each "
            "system, the one nearest to its recipe, once for each seed. Sizes and times add up, "
            "memory is that of the largest"
        )
    if board.first:
        meanings[f"best … of {Path(board.first).name}"] = (
            "a cross-encoder, which would have to read every pair, reads those of each query and puts them in its own "
            "order; all others keep their places below. What it costs is that of both stages"
        )
    lines = [f"- **{name}**: {meaning}." for name, meaning in meanings.items()]
    return "\n".join(fill(line, LINE_WIDTH, subsequent_indent="  ") for line in lines)


def board_from(values: Any, where: str) -> tuple[Board, str]:
    """The board that `board_figures` wrote, and the command that measured it."""
    try:
        rows = tuple(
            BoardRow(
                row["system"], row["variant"], row["kind"], tuple(row["models"]), tuple(row["figures"]), row["cost"]
            )
            for row in values["rows"]
        )
        what = (values["task"], values["data"], values["split"], values["pictures"], values["texts"])
        board = Board(*what, values["device"], rows, values["chance"], values["chosen_here"], values.get("first"))
        for row in rows:
            if row.cost.keys() != board.benchmark.costs.keys():
                raise KeyError("cost")
        return board, str(values["command"])
    except (KeyError, TypeError) as error:
        raise SaccadeError(f"{where} is no leaderboard written by --json: {error}") from error


def board_figures(board: Board, command: str) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "command": command,
        "task": board.task,
        "data": board.data,
        "split": board.split,
        "pictures": board.images,
        "texts": board.texts,
        "device": board.device,
        "chosen_here": board.chosen_here,
        "first": board.first,
        "chance": dict(board.chance),
        "rows": [asdict(row) | {board.metric: row.mean(board.metric)} for row in board.rows],
    }


def draw_board(board: Board, path: Path | str) -> None:
    """Single models as dots, bars from mean − sd to mean + sd; ensembles as rings. A colour is a system."""
    figure = new_figure((7.2, 4.4), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    systems = sorted({row.system for row in board.of_kind("single")})
    colours = {system: colour(i) for i, system in enumerate(systems)}
    for row in board.rows:
        _draw_dot(axes, board, row, colours.get(row.system, FAINT))
    axes.margins(x=0.2, y=0.1)
    axes.set_xlabel(board.benchmark.time[1], color=INK, fontsize=9)
    axes.set_ylabel(board.benchmark.figures[board.metric], color=INK, fontsize=9)
    axes.set_title(f"{board.data}, {board.split}: {board.images:,} pictures", loc="left", fontsize=10, color=INK)
    axes.text(1, 1.01, board.device, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=FAINT)
    axes.xaxis.set_major_formatter(_plain_number)
    axes.xaxis.set_minor_formatter(_plain_number)
    quiet(axes)
    figure.draw_without_rendering()  # only now is it known where the dots lie
    _write_names(figure, axes, board)
    save_figure(figure, path)


def _place(board: Board, row: BoardRow) -> tuple[float, float]:
    return row.cost[board.benchmark.time[0]] or 0.0, row.mean(board.metric)


def _draw_dot(axes: Any, board: Board, row: BoardRow, ink: str) -> None:
    values = [one[board.metric] for one in row.figures]
    axes.errorbar(
        *_place(board, row),
        yerr=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        fmt="o",
        color=ink,
        markersize=7,
        markerfacecolor=ink if row.kind == "single" else "white",
        elinewidth=1.4,
        zorder=3,
    )


def _write_names(figure: Any, axes: Any, board: Board) -> None:
    """Each beside its dot, at the first place that no dot and no other name has taken."""
    dots = [axes.transData.transform(_place(board, row)) for row in board.rows]
    taken = [Bbox.from_bounds(x - 7, y - 7, 14, 14) for x, y in dots]
    frame = axes.get_window_extent()
    for row in board.rows:
        name, ink = (row.name, INK) if row.kind == "single" else (row.variant, FAINT)
        text = axes.annotate(
            name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…",
            _place(board, row),
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


def _plain_number(value: float, _: float) -> str:
    """1, 2, 5, 10 … and not 10⁰; of the ticks between, two a decade are named."""
    return f"{value:g}" if f"{value:e}"[0] in "125" else ""
