"""From a matcher's scores to probabilities: fitted on pairs of a split, half of which fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from saccade.core.errors import SaccadeError
from saccade.metrics.calibration import Platt, Reliability, fit_platt, reliability


@dataclass(frozen=True)
class Calibrated:
    curve: Platt  # fitted on all pictures
    held_out: Reliability  # of a curve fitted on the pictures of even place, on those of odd place
    pairs: int


def calibrate(
    table: Float[np.ndarray, "image text"], image_of_text: Int[np.ndarray, " text"], seed: int = 0
) -> Calibrated:
    """Every sentence with its own picture, which fits, and with another one drawn at random, which (nearly) never does.

    So the probability answers: is this a sentence of this picture, or one of some other picture, if either was as
    likely before? Raises: SaccadeError if there are fewer than four pictures.
    """
    images, texts = table.shape
    if images < 4:
        raise SaccadeError(f"probabilities need four pictures or more, not {images}")
    other = (image_of_text + np.random.default_rng(seed).integers(1, images, texts)) % images
    scores = np.concatenate([table[image_of_text, np.arange(texts)], table[other, np.arange(texts)]])
    fits = np.repeat([True, False], texts)
    odd = np.tile(image_of_text % 2 == 1, 2)
    half = fit_platt(scores[~odd], fits[~odd])
    return Calibrated(fit_platt(scores, fits), reliability(half(scores[odd]), fits[odd]), 2 * texts)
