"""The leaderboard: one table over many matchers on one data set: how well they find, and what finding costs."""

from saccade.leaderboard.board import Board, Row, measure_board
from saccade.leaderboard.contenders import Contender, finished_runs, group_runs
from saccade.leaderboard.page import board_figures, board_from, board_page
from saccade.leaderboard.plot import draw_board

__all__ = [
    "Board",
    "Contender",
    "Row",
    "board_figures",
    "board_from",
    "board_page",
    "draw_board",
    "finished_runs",
    "group_runs",
    "measure_board",
]
