"""The hot operators, each with a plain reference to check it against; `dispatch` says what runs."""

import saccade.batch  # noqa: F401  takes the process's first square root, which may be wrong
from saccade.ops.all_pairs import all_pairs, current_autocast
from saccade.ops.dispatch import OPERATORS, Backend, Operator, backend
from saccade.ops.form import (
    DEFAULT_BUDGET,
    EPSILON,
    AttentionForm,
    Choice,
    Context,
    Normaliser,
    Pool,
    Queries,
)
from saccade.ops.reference import attended_similarity_reference
from saccade.ops.similarity import ATTENDED_SIMILARITY, AttentionProblem, attended_similarity
from saccade.ops.torch import attention, attention_weights, pool

__all__ = [
    "ATTENDED_SIMILARITY",
    "DEFAULT_BUDGET",
    "EPSILON",
    "OPERATORS",
    "AttentionForm",
    "AttentionProblem",
    "Backend",
    "Choice",
    "Context",
    "Normaliser",
    "Operator",
    "Pool",
    "Queries",
    "all_pairs",
    "attended_similarity",
    "attended_similarity_reference",
    "attention",
    "attention_weights",
    "backend",
    "current_autocast",
    "pool",
]
