"""Explanations: alignments turned into pictures and pages that show which word goes with which part of a picture."""

from saccade.explain.explanation import Explanation
from saccade.explain.html.figure import save_explanation, write_gallery
from saccade.explain.html.report import Found, Query, Report, ReportRow, ReportStage, Results, Twin, Value
from saccade.explain.panels.compose import draw_explanation

__all__ = [
    "Explanation",
    "Found",
    "Query",
    "Report",
    "Results",
    "ReportRow",
    "ReportStage",
    "Twin",
    "Value",
    "draw_explanation",
    "save_explanation",
    "write_gallery",
]
