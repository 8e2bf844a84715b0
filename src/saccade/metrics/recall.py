"""Recall@K of image–text retrieval, both ways, for any number of captions per picture.

The rank of a query is the number of wrong answers scored at least as high as its best right answer: a tie counts
against the model, so that constant scores earn nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from saccade.core.errors import SaccadeError

CUTOFFS = (1, 5, 10)
WAYS = {"i2t": "picture→text", "t2i": "text→picture"}  # as figures are named, and as readers know it


@dataclass(frozen=True)
class Ranks:
    """How far down each query's first right answer stands (0 = on top), and what stood on top."""

    image_to_text: Int[np.ndarray, " image"]
    text_to_image: Int[np.ndarray, " text"]
    top_text: Int[np.ndarray, " image"]
    top_image: Int[np.ndarray, " text"]


def ranks(similarity: Float[np.ndarray, "image text"], image_of_text: Int[np.ndarray, " text"]) -> Ranks:
    _check(similarity, image_of_text)
    images, texts = similarity.shape
    own = image_of_text[None, :] == np.arange(images)[:, None]  # [image, text]
    if not own.any(axis=1).all():
        raise SaccadeError(f"picture {int(np.argmin(own.any(axis=1)))} has no caption, so it cannot be a query")
    best = np.where(own, similarity, -np.inf).max(axis=1)
    image_to_text = ((similarity >= best[:, None]) & ~own).sum(axis=1)
    right = similarity[image_of_text, np.arange(texts)]
    text_to_image = ((similarity >= right[None, :]) & ~own).sum(axis=0)
    return Ranks(image_to_text, text_to_image, similarity.argmax(axis=1), similarity.argmax(axis=0))


def _check(similarity: Float[np.ndarray, "image text"], image_of_text: Int[np.ndarray, " text"]) -> None:
    if similarity.ndim != 2 or similarity.shape[1] != len(image_of_text):
        raise SaccadeError(
            f"{len(image_of_text)} texts need a similarity table of as many columns, not {similarity.shape}"
        )
    if not np.isfinite(similarity).all():
        raise SaccadeError("the similarity table holds values that are not finite")


def summary(found: Int[np.ndarray, " query"], cutoffs: Sequence[int] = CUTOFFS) -> dict[str, float]:
    """r1, r5, r10 in percent, and the median and mean rank counted from 1 as the official code does."""
    recalls = {f"r{k}": 100.0 * float((found < k).mean()) for k in cutoffs}
    return {**recalls, "medr": float(np.floor(np.median(found)) + 1), "meanr": float(found.mean() + 1)}


def recall(
    similarity: Float[np.ndarray, "image text"],
    image_of_text: Int[np.ndarray, " text"],
    folds: int = 1,
    cutoffs: Sequence[int] = CUTOFFS,
) -> dict[str, float]:
    """`i2t_r1` … `t2i_meanr` and `rsum`; with folds, the pictures are cut into that many parts and figures averaged."""
    _check(similarity, image_of_text)
    results = []
    for part, mine in _parts(image_of_text, len(similarity), folds):
        found = ranks(similarity[np.ix_(part, mine)], image_of_text[mine] - part[0])
        report = {f"i2t_{k}": v for k, v in summary(found.image_to_text, cutoffs).items()}
        report |= {f"t2i_{k}": v for k, v in summary(found.text_to_image, cutoffs).items()}
        results.append(report | {"rsum": sum(v for k, v in report.items() if "_r" in k)})
    return _mean(results)


def check_folds(images: int, folds: int) -> None:
    """To call before a long computation. Raises: SaccadeError if the pictures make no folds of equal size."""
    if folds < 1 or images % folds:
        raise SaccadeError(f"{images} pictures cannot be cut into {folds} folds of equal size")


def _parts(
    image_of_text: Int[np.ndarray, " text"], images: int, folds: int
) -> Iterator[tuple[Int[np.ndarray, " some"], Int[np.ndarray, " own"]]]:
    """The pictures of each fold, and their texts."""
    check_folds(images, folds)
    for part in np.split(np.arange(images), folds):
        yield part, np.flatnonzero((image_of_text >= part[0]) & (image_of_text <= part[-1]))


def _mean(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([report[key] for report in reports])) for key in reports[0]}


def chance(
    image_of_text: Int[np.ndarray, " text"], images: int, folds: int = 1, cutoffs: Sequence[int] = CUTOFFS
) -> dict[str, float]:
    """What scores drawn at random would earn, in expectation."""
    results = []
    for part, mine in _parts(image_of_text, images, folds):
        texts, counts, report = len(mine), np.bincount(image_of_text[mine] - part[0], minlength=len(part)), {}
        for k in cutoffs:
            missed = np.ones(len(part))
            for drawn in range(min(k, texts)):  # none of the first k captions is one of the picture's own
                missed *= np.clip(texts - counts - drawn, 0, None) / (texts - drawn)
            report[f"i2t_r{k}"] = 100.0 * float((1 - missed).mean())
        report |= {f"t2i_r{k}": 100.0 * min(k, len(part)) / len(part) for k in cutoffs}
        results.append(report | {"rsum": sum(report.values())})
    return _mean(results)
