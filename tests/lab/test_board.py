"""The table itself: figures of every contender, its ensembles, its order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saccade.data import DataConfig
from saccade.lab.leaderboard.board import Board, BoardRow, group_runs, measure_board
from saccade.lab.leaderboard.page import best_cells, board_figures, board_page, draw_board
from saccade.metrics import chance, recall
from saccade.models import Matcher, load_model
from saccade.tasks.evaluator import SplitForModels
from saccade.tasks.matching.benchmark import MatchingBenchmark, short
from saccade.tasks.matching.evaluate import ensemble_of, similarity_table
from toy_runs import IMAGES, SENTENCES, make_features, make_run


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> SplitForModels:
    return SplitForModels(DataConfig("precomp", make_features(tmp_path_factory.mktemp("board") / "data")), "test")


@pytest.fixture(scope="module")
def runs(split: SplitForModels, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two seeds of two systems, and one run of a variant."""
    folder, root = tmp_path_factory.mktemp("runs"), split.config.root
    assert root is not None
    made = [make_run(folder / f"{name}-{seed}", root, name, seed=seed) for name in ("scan", "vse") for seed in (0, 1)]
    return [*map(str, made), str(make_run(folder / "mean", root, words=("pool=mean",)))]


@pytest.fixture(scope="module")
def board(runs: list[str], split: SplitForModels) -> Board:
    return measure_board(group_runs(runs), split, ensembles=True)


def tables(runs: list[str], split: SplitForModels) -> tuple[list[np.ndarray], np.ndarray]:
    models = [load_model(run, Matcher) for run in runs]
    data = split.regions_for(models[0], runs[0])
    return [similarity_table(model, data) for model in models], data.image_of_text


def row(board: Board, system: str, variant: str) -> BoardRow:
    return next(row for row in board.rows if (row.system, row.variant) == (system, variant))


def test_every_row_has_the_recalls_of_its_models(board: Board, runs: list[str], split: SplitForModels) -> None:
    found, owners = tables(runs, split)
    expected = [recall(table, owners) for table in found]
    assert row(board, "scan", "").figures == tuple(expected[:2])
    assert row(board, "vse", "").figures == tuple(expected[2:4])
    assert row(board, "scan", "pool=mean").figures == (expected[4],)
    assert board.chance == chance(owners, IMAGES)
    assert (board.images, board.texts, board.chosen_here) == (IMAGES, len(SENTENCES), False)


def test_ensembles_of_seeds_of_systems_and_of_everything(board: Board, runs: list[str], split: SplitForModels) -> None:
    """One model of each system is the one nearest to its recipe: `pool=mean` has no part in it."""
    found, owners = tables(runs, split)

    def together(*chosen: int) -> dict[str, float]:
        return recall(ensemble_of([found[i] for i in chosen]), owners)

    assert row(board, "ensemble", "scan × 2").figures == (together(0, 1),)
    assert row(board, "ensemble", "scan + vse").figures == (together(0, 2), together(1, 3))
    assert row(board, "ensemble", "all 5 models").figures == (together(0, 1, 2, 3, 4),)
    both = row(board, "ensemble", "scan + vse").cost
    single = [row(board, name, "").cost for name in ("scan", "vse")]
    assert both["parameters"] == sum(cost["parameters"] for cost in single)
    assert both["code_bytes"] == sum(cost["code_bytes"] for cost in single)
    assert both["query_ms"] == pytest.approx(sum(cost["query_ms"] for cost in single))


def test_the_best_stands_first_and_ensembles_stand_apart(board: Board) -> None:
    kinds = [row.kind for row in board.rows]
    assert kinds == sorted(kinds, reverse=True)
    for kind in ("single", "ensemble"):
        sums = [row.mean("rsum") for row in board.of_kind(kind)]
        assert sums == sorted(sums, reverse=True)


def test_no_ensemble_stands_in_the_table_twice(runs: list[str], split: SplitForModels) -> None:
    alone = measure_board(group_runs(runs[:1]), split, ensembles=True)
    assert alone.of_kind("ensemble") == []
    seeds = measure_board(group_runs(runs[:2]), split, ensembles=True)
    assert [row.variant for row in seeds.of_kind("ensemble")] == ["scan × 2"]
    systems = measure_board(group_runs([runs[0], runs[2]]), split, ensembles=True)
    assert [row.variant for row in systems.of_kind("ensemble")] == ["scan + vse"]


def test_the_page_names_its_command_and_marks_the_best(board: Board) -> None:
    page = board_page(board, "saccade leaderboard --runs runs", "board.png")
    assert "Made by `saccade leaderboard --runs runs`." in page
    assert "(board.png)" in page
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    best = board.rows[0]
    first = next(line for line in lines if line.startswith(f"| {best.system} | {best.variant} |"))
    assert first.split(" | ")[3].startswith("**")  # its rsum, before all else
    assert sum(line.startswith("| chance |") for line in lines) == 1
    assert all(line.count("|") == lines[0].count("|") for line in lines[: len(board.rows) + 2])
    for heading in ("kB a picture", "ms a query", "MB for it"):
        assert page.count(heading) == 2  # in the table, and what it means
    assert "chosen among their epochs" not in page


def test_ties_are_best_together() -> None:
    metrics = list(MatchingBenchmark.figures)
    same = tuple(dict.fromkeys(metrics, 1.0) for _ in range(2))
    rows = [BoardRow("a", "", "single", (), same, {}) for _ in range(2)]
    assert best_cells(rows, metrics) == {(i, j) for i in range(2) for j in range(len(metrics))}
    assert best_cells([], metrics) == set()


@pytest.mark.parametrize(("value", "written"), [(1234.4, "1,234"), (12.34, "12.3"), (0.1234, "0.12"), (0.0, "0")])
def test_no_more_digits_than_were_measured(value: float, written: str) -> None:
    assert short(value) == written


def test_the_picture_and_the_values(board: Board, tmp_path: Path) -> None:
    draw_board(board, tmp_path / "board.png")
    assert (tmp_path / "board.png").read_bytes().startswith(b"\x89PNG")
    values = board_figures(board, "saccade leaderboard")
    assert [one["rsum"] for one in values["rows"]] == [row.mean("rsum") for row in board.rows]
    assert values["rows"][0]["cost"]["parameters"] == board.rows[0].cost["parameters"]
