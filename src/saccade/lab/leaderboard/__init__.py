"""The leaderboard: one table over many matchers on one data set: how well they find, and what finding costs."""

from saccade.lab.leaderboard.board import Board, Row, measure_board
from saccade.lab.leaderboard.contenders import Contender, choose_contenders, finished_runs, group_runs
from saccade.lab.leaderboard.page import board_figures, board_from, board_page
from saccade.lab.leaderboard.plot import draw_board

__all__ = [
    "Board",
    "Contender",
    "Row",
    "board_figures",
    "board_from",
    "board_page",
    "choose_contenders",
    "draw_board",
    "finished_runs",
    "group_runs",
    "measure_board",
]
