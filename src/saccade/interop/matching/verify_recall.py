"""Recall@K against the official evaluation: ranks, recalls, folds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saccade.interop.verification import Case, load_arrays, verifier
from saccade.metrics import ranks, recall, summary

METRICS = ("r1", "r5", "r10", "medr", "meanr")
TOLERANCE = 1e-9


@verifier("recall")
def verify_recall(folder: Path) -> Iterator[Case]:
    for path in sorted(folder.glob("*.npz")):
        yield _verify_case(Case(path.stem, load_arrays(path)))


def _verify_case(case: Case) -> Case:
    similarity = case.take("sims")
    owner = np.arange(similarity.shape[1]) // (similarity.shape[1] // similarity.shape[0])
    names = [str(n) for n in case.take("metric_names")] if "metric_names" in case.stored else list(METRICS)
    found, whole = ranks(similarity, owner), recall(similarity, owner)
    stored: dict[str, object] = {
        "i2t_metrics": np.array([summary(found.image_to_text)[n] for n in names]),
        "t2i_metrics": np.array([summary(found.text_to_image)[n] for n in names]),
        "i2t_ranks": found.image_to_text,
        "t2i_ranks": found.text_to_image,
        "i2t_top1": found.top_text,
        "t2i_top1": found.top_image,
        "rsum": whole["rsum"],
    }
    if "fold5_results" in case.stored:
        count = len(case.stored["fold5_results"])
        images = np.split(np.arange(len(similarity)), count)
        rows = np.array([_fold(similarity[np.ix_(part, np.isin(owner, part))], names) for part in images])
        mean = rows.mean(axis=0)
        stored |= {
            "fold5_results": rows,
            "fold5_mean": mean,
            "fold5_true_rsum": recall(similarity, owner, folds=count)["rsum"],
            # the official summary prints these under the wrong labels; we reproduce what it printed
            "fold5_printed_rsum": mean[10] * 6,
            "fold5_printed_avg_i2t": mean[11],
            "fold5_printed_avg_t2i": mean[12],
        }
    for key, value in stored.items():
        if key in case.stored:
            case.compare(key, np.asarray(value), TOLERANCE)
    return case


def _fold(similarity: np.ndarray, names: list[str]) -> list[float]:
    """One fold's row: five figures each way, the two average recalls, their sum."""
    owner = np.arange(similarity.shape[1]) // (similarity.shape[1] // similarity.shape[0])
    found = ranks(similarity, owner)
    ways = [summary(found.image_to_text), summary(found.text_to_image)]
    averages = [sum(way[r] for r in ("r1", "r5", "r10")) / 3 for way in ways]
    return [*(way[n] for way in ways for n in names), *averages, 3 * sum(averages)]
