"""From pictures to what models train on: extraction into a store, and the splits of data sets as regions or pixels.

This is the one room that knows both `vision` (extractors) and `data` (readers and the store).
"""

from saccade.features.clicks import open_clicks
from saccade.features.extraction import Extraction, extract
from saccade.features.splits import open_in_memory, open_moments, open_questions, open_referrals, open_split

__all__ = [
    "Extraction",
    "extract",
    "open_clicks",
    "open_in_memory",
    "open_moments",
    "open_questions",
    "open_referrals",
    "open_split",
]
