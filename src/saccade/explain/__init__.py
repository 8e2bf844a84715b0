"""Explanations: alignments turned into pictures and pages that show which word looks at which part of a picture."""

from saccade.explain.contact_sheet import save_sheet
from saccade.explain.explanation import Explanation
from saccade.explain.gallery import write_gallery
from saccade.explain.regions import RegionPicture, draw_regions
from saccade.explain.report import Found, Query, Report, Results, Row, Stage, Twin, Value

__all__ = [
    "Explanation",
    "Found",
    "Query",
    "RegionPicture",
    "Report",
    "Results",
    "Row",
    "Stage",
    "Twin",
    "Value",
    "draw_regions",
    "save_sheet",
    "write_gallery",
]
