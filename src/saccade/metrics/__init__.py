"""Figures of merit, with no dependency beyond NumPy."""

from saccade.metrics.recall import CUTOFFS, Ranks, chance, ranks, recall, summary

__all__ = ["CUTOFFS", "Ranks", "chance", "ranks", "recall", "summary"]
