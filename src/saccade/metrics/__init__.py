"""Figures of merit, with no dependency beyond NumPy."""

from saccade.metrics.recall import CUTOFFS, WAYS, Ranks, chance, check_folds, ranks, recall, summary
from saccade.metrics.spread import mean_and_spread

__all__ = ["CUTOFFS", "WAYS", "Ranks", "chance", "check_folds", "mean_and_spread", "ranks", "recall", "summary"]
