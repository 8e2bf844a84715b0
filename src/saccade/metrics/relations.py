"""Retrieval of relations: which detected pairs of boxes are true, and average precision over all pictures."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray as Array

from saccade.vision.boxes import iou

MATCH_IOU = 0.5  # of the subject's box and of the object's
ELEVEN = np.arange(11) / 10  # levels of recall


def right_pairs(
    picture: Int[Array, " found"],
    boxes: Float[Array, "found 8"],
    true_picture: Int[Array, " true"],
    true_boxes: Float[Array, "true 8"],
    inclusive: bool = False,
) -> Bool[Array, " found"]:
    """Which found pairs (subject's box, then object's), best first, are right: both boxes overlap those of the true
    pair of the picture that fits best by at least 0.5, and no better one has that.

    `inclusive`: boxes are in pixels, the last one included.
    """
    given, true = torch.from_numpy(boxes), torch.from_numpy(true_boxes)
    shared = [iou(given[:, part], true[:, part], inclusive) for part in (slice(0, 4), slice(4, 8))]
    overlap = torch.minimum(*shared).numpy()
    overlap[picture[:, None] != true_picture[None]] = -1.0
    return right_by_overlap(overlap)


def right_by_overlap(overlap: Float[Array, "found true"]) -> Bool[Array, " found"]:
    """The same from the smaller overlap of the two boxes, found pairs best first."""
    right, taken = np.zeros(len(overlap), dtype=bool), np.zeros(overlap.shape[1], dtype=bool)
    if not len(taken) or not len(right):
        return right
    owner = overlap.argmax(axis=1)
    for n in np.flatnonzero(overlap.max(axis=1) >= MATCH_IOU):
        right[n] = not taken[owner[n]]
        taken[owner[n]] = True
    return right
