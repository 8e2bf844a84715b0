"""Moments in videos: overlap of spans, and recall at n with an overlap of at least m."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray as Array

NMS_SLACK = 0.05  # DRN's evaluator suppresses from an overlap of m − 0.05 on, where m is asked for


def temporal_iou(
    one: Float[Array, "*#span 2"], other: Float[Array, "*#span 2"], hull: bool = False
) -> Float[Array, "*span"]:
    """Intersection over union of spans (start, end); of spans that are apart 0.

    With `hull`, the signed overlap over the length of both and what lies between, which is negative for spans apart.
    """
    shared = np.minimum(one[..., 1], other[..., 1]) - np.maximum(one[..., 0], other[..., 0])
    if hull:
        longest = np.maximum(one[..., 1], other[..., 1]) - np.minimum(one[..., 0], other[..., 0])
        return np.asarray(shared / np.maximum(longest, np.finfo(float).tiny))
    shared = np.clip(shared, 0, None)
    union = one[..., 1] - one[..., 0] + other[..., 1] - other[..., 0] - shared
    return np.asarray(shared / np.maximum(union, np.finfo(float).tiny))


def temporal_nms(spans: Float[Array, "span 2"], threshold: float) -> Bool[Array, " span"]:
    """Which spans stay, best first, if each removes those that overlap it more than this."""
    overlap = temporal_iou(spans[:, None], spans[None])
    kept = np.ones(len(spans), dtype=bool)
    for n in range(len(spans)):
        kept[n] = not (overlap[n, :n][kept[:n]] > threshold).any()
    return kept


def moment_hits(
    spans: Float[Array, "span 2"],
    truth: Float[Array, "true 2"],
    counts: Sequence[int] = (1, 5),
    overlaps: Sequence[float] = (0.3, 0.5, 0.7),
    nms: bool = False,
) -> dict[str, bool]:
    """R@n,IoU=m of one query: whether one of the best n spans, best first, overlaps a true one so much."""
    right = temporal_iou(spans[:, None], truth[None]).max(axis=1, initial=0.0)
    found: dict[str, bool] = {}
    for m in overlaps:
        hits = right[temporal_nms(spans, m - NMS_SLACK)] >= m if nms else right >= m
        found |= {f"R@{n},IoU={m:g}": bool(hits[:n].any()) for n in counts}
    return found


def moment_recall(
    predicted: Sequence[Float[Array, "span 2"]],
    truth: Float[Array, "query 2"],
    counts: Sequence[int] = (1, 5),
    overlaps: Sequence[float] = (0.3, 0.5, 0.7),
    nms: bool = False,
) -> dict[str, float]:
    """R@n,IoU=m: queries with one of the best n spans at that overlap. `predicted`: of each query, best first."""
    each = [moment_hits(*pair, counts, overlaps, nms) for pair in zip(predicted, truth[:, None], strict=True)]
    names = [f"R@{n},IoU={m:g}" for n in counts for m in overlaps]
    return {name: float(np.mean([hits[name] for hits in each])) if each else 0.0 for name in names}
