"""Explanations: alignments turned into pictures and pages that show which word looks at which part of a picture."""

from saccade.explain.explanation import Explanation
from saccade.explain.gallery import write_gallery
from saccade.explain.report import Found, Query, Report, Results, Row, Stage, Twin, Value

__all__ = [
    "Explanation",
    "Found",
    "Query",
    "Report",
    "Results",
    "Row",
    "Stage",
    "Twin",
    "Value",
    "write_gallery",
]
