"""Tasks: what a batch is, what loss to minimise, how to predict and which metrics to report."""

from saccade.tasks.cost import Cost, measure_cost
from saccade.tasks.dense_captioning import (
    DenseCaptioningConfig,
    DenseCaptioningTask,
    DensePhrase,
    dense_captioning_figures,
    describe,
)
from saccade.tasks.evaluation import (
    SplitForModels,
    check_weights,
    encode_all_images,
    encode_all_texts,
    ensemble_of,
    similarity_table,
)
from saccade.tasks.kinds import TASKS, TaskKind
from saccade.tasks.matching import MatchingConfig, MatchingTask
from saccade.tasks.task import Task

__all__ = [
    "TASKS",
    "Cost",
    "DenseCaptioningConfig",
    "DenseCaptioningTask",
    "DensePhrase",
    "MatchingConfig",
    "MatchingTask",
    "SplitForModels",
    "Task",
    "TaskKind",
    "check_weights",
    "dense_captioning_figures",
    "describe",
    "encode_all_images",
    "encode_all_texts",
    "ensemble_of",
    "measure_cost",
    "similarity_table",
]
