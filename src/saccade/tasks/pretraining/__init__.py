"""Pre-training: masked words, masked regions, and which captions belong to which pictures, before any other task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of pre-trained models: how many masked word pieces and masked regions they tell, and how many pairs of a picture
    and a caption they judge rightly, half of them wrong.
    """
