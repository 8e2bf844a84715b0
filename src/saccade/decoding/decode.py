"""One door to all decoders: the way that a configuration names."""

from __future__ import annotations

import torch

from saccade.batch import CaptionState, PictureBatch, RegionBatch
from saccade.decoding.beam import beam_search
from saccade.decoding.config import DecodingConfig
from saccade.decoding.decoded import Decoded
from saccade.decoding.diverse import diverse_beam_search
from saccade.decoding.rollout import greedy, sample
from saccade.models.base.captioner import Captioner


def decode(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    generator: torch.Generator | None = None,
    keep: int | None = None,
) -> Decoded:
    """Captions as `config.how` asks for them, of a beam the `keep` best; nothing is kept for gradients."""
    config = config or DecodingConfig()
    with torch.no_grad():
        if config.how == "greedy":
            return greedy(model, images, config)
        if config.how == "sample":
            return sample(model, images, config, generator=generator)
        if config.how == "diverse":
            return diverse_beam_search(model, images, config)
        return beam_search(model, images, config, keep=keep)
