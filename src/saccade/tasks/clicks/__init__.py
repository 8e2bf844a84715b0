"""Clicks: how probable it is that a user clicks on an item, from what the item is and what the user did before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of click predictors: the area under the ROC curve over all impressions (AUC) and within users (GAUC) in per cent,
    and the log loss, each with an interval over users; beside one probability for all, and the truth where it is known.
    """
