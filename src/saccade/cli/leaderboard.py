"""`saccade leaderboard`: one table over many models on one data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.data_words import is_data_word, sort_words, with_words
from saccade.cli.options import Device
from saccade.cli.tables import figure_table
from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.lab.leaderboard import Board


def leaderboard(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...",
            help="Run or model folders, NAME=FOLDER,FOLDER for seeds to be one row of that name, and KEY=VALUE words "
            "of the data (data=flickr8k root=data/flickr8k split=dev). Without any: all finished runs below runs/.",
        ),
    ] = None,
    runs: Annotated[
        list[Path] | None, typer.Option(help="Take every finished run below this folder; may be given several times.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split; the run's test split if not given.")] = None,
    ensembles: Annotated[
        bool,
        typer.Option(
            "--ensembles", help="Also average: the seeds of each row, one model of each system, and all there are."
        ),
    ] = False,
    again: Annotated[
        Path | None,
        typer.Option("--from", help="Measure nothing: show, and write anew, what an earlier --json FILE holds."),
    ] = None,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a page (Markdown) that says what each column means.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw rsum against the time of a query into this PNG; -o shows it.")
    ] = None,
) -> None:
    """Compare matching models on one data set: recall both ways, size, what an index keeps, time and memory.

    Runs that differ in their seed alone are one row, with mean ± standard deviation. Times are taken on this machine,
    so that they compare systems and not papers.

    Example: saccade leaderboard --runs runs/claims/world --ensembles -o docs/results/leaderboard-world.md
    """
    from saccade.core.files import read_json, write_json, write_text
    from saccade.lab.leaderboard import board_figures, board_from, board_page, draw_board

    console = Console()
    if again is not None:
        if models or runs:
            raise SaccadeError("--from shows what was measured before: give no models or runs with it")
        board, command = board_from(read_json(again), str(again))
    else:
        board, command = _measured(console, models or [], runs or [], split, ensembles, device)
    console.print(_recalls(board), _costs(board), sep="\n")
    if plot:
        draw_board(board, plot)
    if out:
        write_text(out, board_page(board, command, _link(plot, out) if plot else None))
    if json_file:
        write_json(json_file, board_figures(board, command))


def _measured(
    console: Console, given: list[str], runs: list[Path], split: str | None, ensembles: bool, device: str
) -> tuple[Board, str]:
    """The board of these models, and the command that makes it anew."""
    from saccade.core.progress import progress_bar
    from saccade.lab.leaderboard import choose_contenders, measure_board
    from saccade.tasks.evaluator import SplitForModels

    named = {k: v.split(",") for k, _, v in (w.partition("=") for w in given if "=" in w and not is_data_word(w))}
    folders, words, split = sort_words([word for word in given if "=" not in word or is_data_word(word)], split)
    below = runs or ([] if folders or named or not Path("runs").is_dir() else [Path("runs")])
    data_name = next((w.partition("=")[2] for w in words if w.startswith(("data=", "data.name=", "name="))), None)
    entered = choose_contenders(folders, named, below, data_name)
    if entered.left_out:
        runs_left = f"{entered.left_out} run{'s' if entered.left_out > 1 else ''}"
        console.print(f"left out: {runs_left} on other data", highlight=False)
    config = with_words(entered.data, words)
    with progress_bar("scoring") as tell:
        split_for_models = SplitForModels(config, split or config.test_split)
        board = measure_board(entered.contenders, split_for_models, device, ensembles, tell)
    return board, _command(given, below if runs else [], split, ensembles, device)


def _recalls(board: Board) -> Table:
    """Means, and how far seeds lie apart in rsum: a terminal is narrow. The page gives every spread."""
    from saccade.lab.leaderboard.page import FIGURES, RECALLS, best_cells
    from saccade.metrics import mean_and_spread
    from saccade.tasks.matching.evaluate import RECALL_HEADINGS

    title = f"{board.data}/{board.split}: {board.images:,} pictures, {board.texts:,} texts"
    table = figure_table(title, RECALL_HEADINGS)
    for kind in ("single", "ensemble"):
        rows = board.of_kind(kind)
        best = best_cells(rows)
        for i, row in enumerate(rows):
            cells = [mean_and_spread([one["rsum"] for one in row.figures])]
            cells += [f"{mean([one[key] for one in row.figures]):.1f}" for key in RECALLS]
            cells = [f"[bold green]{cell}[/]" if (i, j) in best else cell for j, cell in enumerate(cells)]
            table.add_row(escape(row.name), *cells, end_section=i == len(rows) - 1)
    table.add_row("chance", *(f"{board.chance[key]:.1f}" for key in FIGURES))
    return table


def _costs(board: Board) -> Table:
    from saccade.lab.leaderboard.page import COST_HEADINGS, cost_cells

    table = figure_table(f"what it costs, on {board.device}", ("model", *COST_HEADINGS))
    for row in board.rows:
        table.add_row(escape(row.name), *cost_cells(row.cost))
    return table


def _command(given: Sequence[str], below: Sequence[Path], split: str | None, ensembles: bool, device: str) -> str:
    """What makes the table anew; folders are named as given, data as a user would keep them."""
    words = [f"root=data/{Path(w[5:]).name}" if w.startswith("root=") else w for w in given if w[:6] != "split="]
    words += [f"--runs {folder}" for folder in below]
    words += [f"--split {split}"] if split else []
    words += ["--ensembles"] if ensembles else []
    words += [f"--device {device}"] if device != "cpu" else []
    return " ".join(["saccade leaderboard", *words])


def _link(picture: Path, page: Path) -> str:
    """Where the picture lies, seen from the page."""
    import os

    return Path(os.path.relpath(picture, page.parent)).as_posix()
