"""The hot operators, each with a plain reference to check it against."""

import saccade.batch  # noqa: F401  takes the process's first square root, which may be wrong
from saccade.ops.maxsim import Queries, maxsim, maxsim_codes
from saccade.ops.maxsim_reference import maxsim_reference
from saccade.ops.pairwise import (
    DEFAULT_BUDGET,
    EPSILON,
    AttentionForm,
    Choice,
    Normaliser,
    Pool,
    attended_similarity,
    attention,
    attention_weights,
    never_waits,
    pool,
)
from saccade.ops.pairwise_reference import attended_similarity_reference
from saccade.ops.region_codes import RegionCodes
from saccade.ops.search import CodeSource, search_codes
from saccade.ops.top_k import Ranking, streamed_top_k, top_k

__all__ = [
    "DEFAULT_BUDGET",
    "EPSILON",
    "AttentionForm",
    "Choice",
    "CodeSource",
    "Normaliser",
    "Pool",
    "Queries",
    "Ranking",
    "RegionCodes",
    "attended_similarity",
    "attended_similarity_reference",
    "attention",
    "attention_weights",
    "maxsim",
    "maxsim_codes",
    "maxsim_reference",
    "never_waits",
    "pool",
    "search_codes",
    "streamed_top_k",
    "top_k",
]
