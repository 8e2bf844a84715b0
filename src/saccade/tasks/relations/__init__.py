"""Relation detection: which pairs of boxes of a picture stand in which relation, also in ones that were never seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of relation detectors: mean average precision in per cent of retrieving the true pairs of each triplet, over all
    triplets, those seen in training, rarely seen and unseen; beside a ranking at random and scores without transfer.
    """

    boxes: Literal["given", "proposed"] | None = None
    mixture: Literal["s-r-o", "s-sro-o", "s-r-o-sro", "sro"] | None = None
