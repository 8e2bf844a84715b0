"""Moments: when in a video happens what a sentence says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """Of moment finders: how often one of the best moments overlaps the true one enough, in per cent, beside a moment
    at random and the whole video. A matcher is measured by windows that slide over the video (`--task moments`),
    scored in two ways.
    --no-nms is for them.
    """

    no_nms: bool = False
