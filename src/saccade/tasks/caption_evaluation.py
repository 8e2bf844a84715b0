"""What a trained captioner makes of a split: a caption of every picture, and how good they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from saccade.core.progress import Tell
from saccade.data.records import CaptionedImages
from saccade.decoding import DecodingConfig, decode
from saccade.metrics import CAPTION_METRICS, caption_scores
from saccade.models.base.captioner import Captioner

QUICK = ("bleu1", "bleu4", "rouge_l", "cider_d")  # what an evaluation in training asks: METEOR and graphs take longer


@torch.no_grad()
def caption_all(
    model: Captioner,
    data: CaptionedImages,
    decoding: DecodingConfig | None = None,
    batch_size: int = 256,
    tell: Tell = lambda done, total: None,
) -> list[str]:
    """The best caption of every picture of a split, in order."""
    device = next(model.parameters()).device
    was_training, said = model.training, []
    model.eval()
    try:
        for first in range(0, len(data.images), batch_size):
            part = range(first, min(first + batch_size, len(data.images)))
            found = decode(model, data.images.batch(list(part)).to(device), decoding, keep=1).best()
            said += [model.sentence(row) for row in found.words.tolist()]
            tell(part.stop, len(data.images))
        return said
    finally:
        model.train(was_training)


def references_of(data: CaptionedImages) -> list[list[str]]:
    """What people said of every picture."""
    return [[data.texts[text] for text in owned] for owned in data.texts_of_image]


def caption_figures(
    model: Captioner,
    data: CaptionedImages,
    decoding: DecodingConfig | None = None,
    batch_size: int = 256,
    metrics: Sequence[str] = QUICK,
) -> dict[str, float]:
    """Caption metrics of a split, as in papers: times 100."""
    said = caption_all(model, data, decoding, batch_size)
    scores = caption_scores(said, references_of(data), only=metrics)
    return {name: 100 * scores[name].corpus for name in CAPTION_METRICS if name in scores}
