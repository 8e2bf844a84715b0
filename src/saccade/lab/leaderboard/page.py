"""The leaderboard as a page of the docs, as plain values, and as the cells that page and terminal share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.lab.leaderboard.board import Board, Row
from saccade.lab.leaderboard.cost import Cost
from saccade.lab.reports import markdown_table
from saccade.metrics import CUTOFFS, WAYS, mean_and_spread

LINE_WIDTH = 120  # of the page
RECALLS = [f"{way}_r{k}" for way in WAYS for k in CUTOFFS]
FIGURES = ["rsum", *RECALLS]  # what counts first, where a narrow page shows it
FIGURE_HEADINGS = ["rsum"] + [f"{way} R@{k}" if k == CUTOFFS[0] else f"R@{k}" for way in WAYS.values() for k in CUTOFFS]
COST_HEADINGS = ["parameters", "kB a picture", "ms a query", "s for all pairs", "MB for it"]


def cost_cells(cost: Cost) -> list[str]:
    return [
        f"{cost.parameters / 1e6:.1f} M" if cost.parameters >= 1e6 else f"{cost.parameters / 1e3:.0f} k",
        short(cost.code_bytes / 1e3),
        short(cost.query_ms),
        short(cost.table_seconds),
        "–" if cost.peak_bytes is None else short(cost.peak_bytes / 1e6),
    ]


def short(value: float) -> str:
    """No more digits than were measured: 1,234 and 12.3 and 0.12."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def figure_cells(row: Row) -> list[str]:
    return [mean_and_spread([one[key] for one in row.figures]) for key in FIGURES]


def best_cells(rows: Sequence[Row]) -> set[tuple[int, int]]:
    """Which cells (row, column of FIGURES) hold the highest mean of their column."""
    if not rows:
        return set()
    means = np.array([[np.mean([one[key] for one in row.figures]) for key in FIGURES] for row in rows])
    best = np.isclose(means, means.max(axis=0))
    return {(int(row), int(column)) for row, column in np.argwhere(best)}


def board_page(board: Board, command: str, plot: str | None = None) -> str:
    """Markdown: what was compared, the two tables, and what their columns mean."""
    several = any(len(row.figures) > 1 for row in board.rows)
    intro = (
        f"{board.images:,} pictures, {board.texts:,} texts. Recall in per cent, both ways; rsum is the sum of the six"
    )
    intro += ", mean ± standard deviation over seeds. " if several else ". "
    intro += "The best of each column is bold, single models and ensembles apart."
    if board.chosen_here:
        intro += " The models were chosen among their epochs by this very split, so that the figures are a little kind."
    parts = [
        f"# Leaderboard: {board.data}, {board.split}",
        fill(intro, LINE_WIDTH),
        markdown_table(["system", "variant", "seeds", *FIGURE_HEADINGS], _recall_lines(board), words=2),
        *([f"![rsum against the time of a query]({plot})"] if plot else []),
        f"What it costs, measured on {board.device}:",
        markdown_table(
            ["system", "variant", *COST_HEADINGS], [_names(row) + cost_cells(row.cost) for row in board.rows], words=2
        ),
        _legend(board),
        f"Made by `{command}`.",
    ]
    return "\n\n".join(parts) + "\n"


def _names(row: Row) -> list[str]:
    return [row.system, row.variant]


def _recall_lines(board: Board) -> list[list[str]]:
    lines = []
    for kind in ("single", "ensemble"):
        rows = board.of_kind(kind)
        best = best_cells(rows)
        for i, row in enumerate(rows):
            cells = [f"**{cell}**" if (i, j) in best else cell for j, cell in enumerate(figure_cells(row))]
            lines.append([*_names(row), str(len(row.figures)), *cells])
    return [*lines, ["chance", "", "", *(f"{board.chance[key]:.1f}" for key in FIGURES)]]


def _legend(board: Board) -> str:
    meanings = {
        "variant": "the settings in which runs differ from their system's recipe, where a system has several variants",
        "kB a picture": "what an index must keep of a picture: the parts of its code that the score reads, in float32",
        "ms a query": f"encoding one text and scoring it against all {board.images:,} pictures, whose codes are there "
        "(the median over single queries, after a warm-up)",
        "s for all pairs": f"scoring {board.images:,} × {board.texts:,} pairs, codes being there",
        "MB for it": "the most memory that this took beside codes and weights; models cut the work into tiles that fit "
        "a budget",
    }
    if board.of_kind("ensemble"):
        meanings["ensemble"] = (
            "the mean of the models' similarities, each brought to the same spread; × counts models that differ in "
            "their seed, + joins one model of each system, the one nearest to its recipe, once for each seed. Sizes "
            "and times add up, memory is that of the largest"
        )
    lines = [f"- **{name}**: {meaning}." for name, meaning in meanings.items()]
    return "\n".join(fill(line, LINE_WIDTH, subsequent_indent="  ") for line in lines)


def board_from(values: Any, where: str) -> tuple[Board, str]:
    """The board that `board_figures` wrote, and the command that measured it."""
    try:
        rows = tuple(
            Row(
                row["system"],
                row["variant"],
                row["kind"],
                tuple(row["models"]),
                tuple(row["figures"]),
                Cost(**row["cost"]),
            )
            for row in values["rows"]
        )
        size = (values["pictures"], values["texts"])
        board = Board(
            values["data"], values["split"], *size, values["device"], rows, values["chance"], values["chosen_here"]
        )
        return board, str(values["command"])
    except (KeyError, TypeError) as error:
        raise SaccadeError(f"{where} is no leaderboard written by --json: {error}") from error


def board_figures(board: Board, command: str) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    return {
        "command": command,
        "data": board.data,
        "split": board.split,
        "pictures": board.images,
        "texts": board.texts,
        "device": board.device,
        "chosen_here": board.chosen_here,
        "chance": dict(board.chance),
        "rows": [asdict(row) | {"rsum": row.rsum} for row in board.rows],
    }
