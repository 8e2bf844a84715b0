"""Tasks: what a batch is, what loss to minimise, how to predict and which metrics to report."""

from saccade.tasks.caption_evaluation import caption_all, caption_figures, references_of
from saccade.tasks.captioning import CaptioningConfig, CaptioningTask
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
from saccade.tasks.refined import Refined, refine, refined_similarity
from saccade.tasks.task import Task
from saccade.tasks.unpaired_captioning import UnpairedCaptioningConfig, UnpairedCaptioningTask

__all__ = [
    "TASKS",
    "CaptioningConfig",
    "CaptioningTask",
    "Cost",
    "DenseCaptioningConfig",
    "DenseCaptioningTask",
    "DensePhrase",
    "MatchingConfig",
    "MatchingTask",
    "Refined",
    "SplitForModels",
    "Task",
    "TaskKind",
    "UnpairedCaptioningConfig",
    "UnpairedCaptioningTask",
    "caption_all",
    "caption_figures",
    "check_weights",
    "dense_captioning_figures",
    "describe",
    "encode_all_images",
    "encode_all_texts",
    "ensemble_of",
    "measure_cost",
    "references_of",
    "refine",
    "refined_similarity",
    "similarity_table",
]
