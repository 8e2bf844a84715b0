"""The hot operators, each with a plain reference to check it against."""

from saccade.ops.pairwise import (
    DEFAULT_BUDGET,
    AttentionForm,
    Choice,
    Normaliser,
    Pool,
    attended_similarity,
    attention,
    pool,
)
from saccade.ops.pairwise_reference import attended_similarity_reference

__all__ = [
    "DEFAULT_BUDGET",
    "AttentionForm",
    "Choice",
    "Normaliser",
    "Pool",
    "attended_similarity",
    "attended_similarity_reference",
    "attention",
    "pool",
]
