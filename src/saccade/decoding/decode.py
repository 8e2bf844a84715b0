"""One door to all decoders: the way that a configuration names."""

from __future__ import annotations

import torch

from saccade.batch import CaptionState, PictureBatch, RegionBatch
from saccade.decoding.beam import beam_search, diverse_beam_search
from saccade.decoding.config import DecodingConfig
from saccade.decoding.output import DecodedCaptions
from saccade.decoding.sampling import greedy, sample
from saccade.models.base.captioner import Captioner


def decode(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    generator: torch.Generator | None = None,
    keep: int | None = None,
) -> DecodedCaptions:
    """Captions as `config.how` asks for them, of a beam the `keep` best; nothing is kept for gradients."""
    config = config or DecodingConfig()
    with torch.no_grad():
        if config.strategy == "greedy":
            return greedy(model, images, config)
        if config.strategy == "sample":
            return sample(model, images, config, generator=generator)
        if config.strategy == "diverse":
            return diverse_beam_search(model, images, config)
        return beam_search(model, images, config, keep=keep)
