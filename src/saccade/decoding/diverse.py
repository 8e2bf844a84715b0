"""Diverse beam search (Vijayakumar et al., AAAI 2018): groups of beams, each shy of the words of those before it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import CaptionState, PictureBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.decoding.beam import Search
from saccade.decoding.config import DecodingConfig
from saccade.decoding.output import DecodedCaptions
from saccade.decoding.sampling import begin, worth_asking
from saccade.models.base.captioner import Captioner


@torch.no_grad()
def diverse_beam_search(
    model: Captioner, images: RegionBatch | PictureBatch | CaptionState, config: DecodingConfig | None = None
) -> DecodedCaptions:
    """The best captions of the first group, then of the second, …, `beam / groups` of each.

    Group g is g words behind the first, as in the code of ImageCaptioning.pytorch: what it must pay for is what earlier
    groups say at that place in the sentences they follow by now.
    """
    config = config or DecodingConfig()
    if config.num_beams % config.num_beam_groups:
        raise SaccadeError(f"beam={config.num_beams} cannot be shared out among groups={config.num_beam_groups}")
    state = begin(model, images)
    groups = [
        Search(model, state, config, config.num_beams // config.num_beam_groups) for _ in range(config.num_beam_groups)
    ]
    for time in range(config.max_length + config.num_beam_groups - 1):
        for number, group in enumerate(groups):
            if 0 <= time - number < config.max_length:
                times = _times_said(groups[:number], time - number, len(model.vocabulary))
                group.step(None if times is None else config.diversity_penalty * times)
        begun = time >= config.num_beam_groups - 1
        if begun and worth_asking(groups[0].said, time) and all(bool(group.settled.all()) for group in groups):
            break
    return stack([group.result() for group in groups], side_by_side=True)


def _times_said(groups: list[Search], step: int, vocabulary: int) -> Float[Tensor, "image word"] | None:
    """How many beams of these groups have each word at this place."""
    if not groups:
        return None
    words = torch.cat([group.said[:, :, step] for group in groups], dim=1)
    times = torch.zeros(len(words), vocabulary, device=words.device)
    return times.scatter_add(1, words, torch.ones_like(words, dtype=times.dtype))
