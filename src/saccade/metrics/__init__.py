"""Figures of merit: numbers or words in, numbers out. Importing this needs no PyTorch."""

from saccade.metrics.captions.cider import DocumentFrequencies, cider_d
from saccade.metrics.captions.report import CAPTION_METRICS, caption_report, caption_scores, diversity
from saccade.metrics.recall import CUTOFFS, WAYS, chance, check_folds, ranks, recall, summary
from saccade.metrics.statistics import mean_and_spread

__all__ = [
    "CAPTION_METRICS",
    "CUTOFFS",
    "WAYS",
    "DocumentFrequencies",
    "caption_report",
    "caption_scores",
    "chance",
    "check_folds",
    "cider_d",
    "diversity",
    "mean_and_spread",
    "ranks",
    "recall",
    "summary",
]
