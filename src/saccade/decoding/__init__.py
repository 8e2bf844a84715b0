"""Decoding: from a captioner's word-by-word probabilities to captions, written once for all captioners."""

from __future__ import annotations

import torch

from saccade.batch import CaptionState, PictureBatch, RegionBatch
from saccade.decoding.beam import beam_search, diverse_beam_search
from saccade.decoding.config import DecodingConfig
from saccade.decoding.output import DecodedCaptions
from saccade.decoding.sampling import greedy, sample, top_k_top_p
from saccade.models.base.captioner import Captioner

__all__ = [
    "DecodedCaptions",
    "DecodingConfig",
    "beam_search",
    "decode",
    "diverse_beam_search",
    "greedy",
    "sample",
    "top_k_top_p",
]


def decode(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    generator: torch.Generator | None = None,
    keep: int | None = None,
) -> DecodedCaptions:
    """Captions by `config.strategy`, of a beam the `keep` best; nothing is kept for gradients."""
    config = config or DecodingConfig()
    with torch.no_grad():
        if config.strategy == "greedy":
            return greedy(model, images, config)
        if config.strategy == "sample":
            return sample(model, images, config, generator=generator)
        if config.strategy == "diverse":
            return diverse_beam_search(model, images, config)
        return beam_search(model, images, config, keep=keep)
