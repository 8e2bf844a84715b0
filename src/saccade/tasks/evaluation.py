"""What a trained matcher makes of a split: its pictures and sentences encoded, compared, and measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import ImageCode, TextCode, stack
from saccade.core.errors import SaccadeError
from saccade.data import CaptionedImages, DataConfig
from saccade.features import open_split
from saccade.models import Matcher, Model
from saccade.tasks.refined import refined_similarity


class SplitForModels:
    """One split of a data set as each model sees it: as pixels, or as regions of the extractor that it learned from.

    Every way of seeing is opened once, however many models share it; pictures and sentences are the same in all.
    """

    def __init__(self, config: DataConfig, split: str) -> None:
        self.config, self.split = config, split
        self._opened: dict[tuple[str, int | None], CaptionedImages] = {}

    def regions_for(self, model: Model, name: object) -> CaptionedImages:
        """The split for this model; `name` is what a user calls it, for the sentence that says why it cannot be."""
        pixels = model.backbone.size if model.backbone is not None else None
        extractor = model.extractor or self.config.extractor  # the model says what saw the photos it learned from
        if (extractor, pixels) not in self._opened:
            self._opened[extractor, pixels] = open_split(replace(self.config, extractor=extractor), self.split, pixels)
        data = self._opened[extractor, pixels]
        if pixels is None:
            check_features(model, name, data.regions.dim, data.extractor, data.name)
        return data


def check_features(model: Model, name: object, dim: int, extractor: str | None, where: object) -> None:
    """A sentence where a model cannot read the regions that are `where`: of another size, or of another extractor."""
    if model.backbone is not None:
        raise SaccadeError(
            f"{name} looks at pixels with an extractor of its own, {where} holds regions: give it the photos"
        )
    if (known := getattr(model.config, "region_dim", dim)) != dim:
        raise SaccadeError(f"{name} reads features of {known} numbers, {where} has {dim}")
    if model.extractor and extractor and _kind(model.extractor) != _kind(extractor):
        raise SaccadeError(
            f"{name} learned from what the extractor {model.extractor} saw, {where} was seen by {extractor}"
        )


def _kind(extractor: str) -> str:
    """`bottomup` of `bottomup@36`: the same extractor may be written in several ways."""
    return re.split("[:@]", extractor)[0]


@torch.no_grad()
def encode_all_images(model: Matcher, data: CaptionedImages, batch_size: int = 256) -> ImageCode:
    """Every picture of a split, encoded; the codes stay on the model's device."""
    device = next(model.parameters()).device
    parts = [range(i, min(i + batch_size, len(data.images))) for i in range(0, len(data.images), batch_size)]
    return stack([model.encode_images(model.extract(data.images.batch(list(part)).to(device))) for part in parts])


@torch.no_grad()
def encode_all_texts(model: Matcher, texts: Sequence[str], batch_size: int = 256) -> TextCode:
    device = next(model.parameters()).device
    parts = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    return stack([model.encode_texts(model.read(part).to(device)) for part in parts])


@torch.no_grad()
def similarity_table(
    model: Matcher, data: CaptionedImages, batch_size: int = 256, quick: bool = False
) -> Float[np.ndarray, "image text"]:
    """All pictures of a split against all its sentences.

    `quick`: in fewer bits where the model can, and again in full wherever a rank hangs on it (`refined_similarity`).
    """
    was_training = model.training
    model.eval()
    try:
        images, texts = encode_all_images(model, data, batch_size), encode_all_texts(model, data.texts, batch_size)
        if quick:
            table = refined_similarity(model, images, texts, data.image_of_text).table
        else:
            table = model.similarity(images, texts)
        return table.float().cpu().numpy()
    finally:
        model.train(was_training)


def ensemble_of(
    tables: Sequence[Float[np.ndarray, "image text"]], weights: Sequence[float] | None = None, raw: bool = False
) -> Float[np.ndarray, "image text"]:
    """The mean of several models' similarities, each brought to zero mean and unit spread: their scales differ.

    `raw` leaves them as they are, as papers do that average two models of one kind; `weights` counts some for more.
    """
    if weights is not None:
        check_weights(weights, len(tables))
    scaled = tables if raw else [(table - table.mean()) / max(float(table.std()), 1e-12) for table in tables]
    return np.asarray(np.average(np.stack(scaled), axis=0, weights=weights))


def check_weights(weights: Sequence[float], models: int) -> None:
    """A sentence where these are no weights for so many models; worth asking before a long computation."""
    if len(weights) != models:
        raise SaccadeError(f"{models} models need {models} weights, not {len(weights)}")
    if not all(np.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise SaccadeError(f"weights must be zero or more, and one above zero: not {', '.join(map(str, weights))}")
