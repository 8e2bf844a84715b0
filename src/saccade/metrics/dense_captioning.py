"""Mean average precision of dense captioning (Johnson, Karpathy, Fei-Fei; CVPR 2016): the right box, the right words.

Each picture's regions, surest first, claim the true box they overlap most, and a box can be claimed once. A claim is
right if the overlap reaches a threshold and METEOR of the phrase against the box's phrases is above another. Average
precision is taken over all pictures for each of 5 × 6 pairs of thresholds; the figure is the mean of the thirty.
True boxes that overlap by 0.7 are merged first: several people may have described one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array

from saccade.metrics.captions.meteor import meteor
from saccade.metrics.captions.score import Candidates, CaptionScore, References, Tokens
from saccade.metrics.detection import average_precision
from saccade.vision.boxes import iou

OVERLAPS = (0.3, 0.4, 0.5, 0.6, 0.7)
SCORES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)
MERGED = 0.7
RECALL_LEVELS = np.linspace(0.0, 1.0, 101)

Metric = Callable[[Candidates, References], CaptionScore]


@dataclass(frozen=True, eq=False)
class Phrased:
    """Boxes of one picture with what is said of each: several phrases for true boxes, one for those found."""

    boxes: Float[Array, "region 4"]  # x1, y1, x2, y2, in any unit
    phrases: Sequence[Sequence[Tokens]]
    confidence: Float[Array, " region"] | None = None  # of those found


def dense_captioning_map(
    found: Sequence[Phrased], truth: Sequence[Phrased], metric: Metric = meteor
) -> dict[str, float]:
    """`map`, and `detection_map` where any words will do; both in 0…1."""
    if len(found) != len(truth):
        raise ValueError(f"regions of {len(found)} pictures cannot be compared with those of {len(truth)}")
    merged = [merge(picture) for picture in truth]
    claims = [claim for some, true in zip(found, merged, strict=True) for claim in _claims(some, true)]
    total = sum(len(true.boxes) for true in merged)
    order = np.argsort([-claim.confidence for claim in claims], kind="stable")
    claims = [claims[i] for i in order]
    overlap = np.array([claim.overlap for claim in claims])
    first = np.array([claim.first for claim in claims], dtype=bool)
    words = _word_scores(claims, metric)
    described = [
        average_precision((overlap >= least) & first & (words > score), total, RECALL_LEVELS)
        for least in OVERLAPS
        for score in SCORES
    ]
    detected = [average_precision((overlap >= least) & first, total, RECALL_LEVELS) for least in OVERLAPS]
    return {"map": float(np.mean(described)), "detection_map": float(np.mean(detected))}


def merge(truth: Phrased, overlap: float = MERGED) -> Phrased:
    """Boxes that overlap one box by this much become their mean, with all their phrases; the largest group first."""
    close = _iou(truth.boxes, truth.boxes) >= overlap
    boxes: list[Array] = []
    phrases: list[list[Tokens]] = []
    while close.any():
        group = np.flatnonzero(close[:, int(close.sum(axis=0).argmax())])
        boxes.append(truth.boxes[group].mean(axis=0))
        phrases.append([phrase for i in group for phrase in truth.phrases[int(i)]])
        close[group] = False
        close[:, group] = False
    return Phrased(np.array(boxes).reshape(-1, 4), phrases)


@dataclass(frozen=True)
class _Claim:
    confidence: float
    overlap: float
    first: bool  # nobody surer had claimed the box
    phrase: Tokens
    references: Sequence[Tokens]


def _claims(found: Phrased, truth: Phrased) -> list[_Claim]:
    """The claims of one picture's regions, surest first."""
    confidence = np.zeros(len(found.boxes)) if found.confidence is None else found.confidence
    overlap, taken, claims = _iou(found.boxes, truth.boxes), set(), []
    for i in np.argsort(-confidence, kind="stable").tolist():
        best = int(overlap[i].argmax()) if len(truth.boxes) else -1
        met = best >= 0 and overlap[i, best] > 0
        references = truth.phrases[best] if met else ()
        shared = float(overlap[i, best]) if met else 0.0
        claims.append(_Claim(float(confidence[i]), shared, met and best not in taken, found.phrases[i][0], references))
        if met:
            taken.add(best)
    return claims


def _word_scores(claims: Sequence[_Claim], metric: Metric) -> Float[Array, " claim"]:
    """Of the claims that could be right; every pair of phrase and references is scored once."""
    scored = [i for i, claim in enumerate(claims) if claim.first and claim.overlap >= min(OVERLAPS)]
    scores = np.zeros(len(claims))
    keys = [(tuple(claims[i].phrase), tuple(map(tuple, claims[i].references))) for i in scored]
    places = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    if places:
        each = metric([phrase for phrase, _ in places], [references for _, references in places]).each
        scores[scored] = [each[places[key]] for key in keys]
    return scores


def _iou(a: Float[Array, "n 4"], b: Float[Array, "m 4"]) -> Float[Array, "n m"]:
    return np.asarray(iou(torch.tensor(a), torch.tensor(b)))
