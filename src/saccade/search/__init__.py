"""Searching collections: an index of pictures and two-stage search; below them region codes, MaxSim, exact top-k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saccade.search.exact import CodeSource, Ranking, search_codes, streamed_top_k, top_k
from saccade.search.maxsim import QueryWords, maxsim, maxsim_codes, maxsim_reference
from saccade.search.region_codes import RegionCodes

if TYPE_CHECKING:
    from saccade.search.index import Changes, Index, IndexStats
    from saccade.search.query import Found, Hit, Query, WordHit
    from saccade.search.searcher import Searcher

_LATER = {  # imported when asked for: they need models and pictures, the operators do not
    "Changes": "index",
    "Index": "index",
    "IndexStats": "index",
    "Query": "query",
    "Found": "query",
    "Hit": "query",
    "WordHit": "query",
    "Searcher": "searcher",
}

__all__ = [
    "Changes",
    "CodeSource",
    "Found",
    "Hit",
    "Index",
    "IndexStats",
    "Query",
    "QueryWords",
    "Ranking",
    "RegionCodes",
    "Searcher",
    "WordHit",
    "maxsim",
    "maxsim_codes",
    "maxsim_reference",
    "search_codes",
    "streamed_top_k",
    "top_k",
]


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"saccade.search.{_LATER[name]}"), name)
    raise AttributeError(f"module 'saccade.search' has no attribute {name!r}")
