"""The hot operators, each with a plain reference to check it against."""

import saccade.batch  # noqa: F401  takes the process's first square root, which may be wrong
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
    pool,
)
from saccade.ops.pairwise_reference import attended_similarity_reference

__all__ = [
    "DEFAULT_BUDGET",
    "EPSILON",
    "AttentionForm",
    "Choice",
    "Normaliser",
    "Pool",
    "attended_similarity",
    "attended_similarity_reference",
    "attention",
    "attention_weights",
    "pool",
]
