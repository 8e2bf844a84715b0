"""Searching collections by late interaction: region codes, where they are kept, and the pictures that score best."""

from saccade.search.code_store import CodeStore, CodeWriter, write_bytes
from saccade.search.exact import CodeSource, Ranking, search_codes, streamed_top_k, top_k
from saccade.search.maxsim import QueryWords, maxsim, maxsim_codes, maxsim_reference
from saccade.search.region_codes import RegionCodes

__all__ = [
    "CodeSource",
    "CodeStore",
    "CodeWriter",
    "QueryWords",
    "Ranking",
    "RegionCodes",
    "maxsim",
    "maxsim_codes",
    "maxsim_reference",
    "search_codes",
    "streamed_top_k",
    "top_k",
    "write_bytes",
]
