"""Tasks: what a batch is, what loss to minimise, how to predict and which metrics to report."""

from saccade.tasks.matching import (
    MatchingConfig,
    MatchingTask,
    encode_all_images,
    encode_all_texts,
    ensemble_of,
    similarity_table,
)
from saccade.tasks.task import Task

__all__ = [
    "MatchingConfig",
    "MatchingTask",
    "Task",
    "encode_all_images",
    "encode_all_texts",
    "ensemble_of",
    "similarity_table",
]
