"""Recall@K against the official evaluation: ranks, recalls, folds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from saccade.interop.checkpoint import load_arrays
from saccade.interop.harness import Case, Golden
from saccade.metrics import ranks, recall, summary

METRICS = ("r1", "r5", "r10", "medr", "meanr")


class RecallCase:
    def __init__(self, case: Case) -> None:
        self.case, similarity = case, case.take("sims")
        names = [str(n) for n in case.take("metric_names")] if "metric_names" in case.stored else list(METRICS)
        owner = owners(similarity)
        found, ways = ranks(similarity, owner), figures(similarity, names)
        self.found: dict[str, Any] = {
            "i2t_metrics": ways[0],
            "t2i_metrics": ways[1],
            "i2t_ranks": found.image_to_text,
            "t2i_ranks": found.text_to_image,
            "i2t_top1": found.top_text,
            "t2i_top1": found.top_image,
            "rsum": recall(similarity, owner)["rsum"],
        }
        if "fold5_results" not in case.stored:
            return
        parts = np.split(np.arange(len(similarity)), len(case.stored["fold5_results"]))
        rows = np.array([fold(similarity[np.ix_(part, np.isin(owner, part))], names) for part in parts])
        mean = rows.mean(axis=0)
        self.found |= {
            "fold5_results": rows,
            "fold5_mean": mean,
            "fold5_true_rsum": recall(similarity, owner, folds=len(parts))["rsum"],
            # the official summary prints these under the wrong labels; we reproduce what it printed
            "fold5_printed_rsum": mean[10] * 6,
            "fold5_printed_avg_i2t": mean[11],
            "fold5_printed_avg_t2i": mean[12],
        }


def owners(similarity: np.ndarray) -> np.ndarray:
    return np.asarray(np.arange(similarity.shape[1]) // (similarity.shape[1] // similarity.shape[0]))


def figures(similarity: np.ndarray, names: Sequence[str]) -> list[list[float]]:
    """The named figures, from pictures to texts and back."""
    found = ranks(similarity, owners(similarity))
    return [[summary(way)[name] for name in names] for way in (found.image_to_text, found.text_to_image)]


def fold(similarity: np.ndarray, names: Sequence[str]) -> list[float]:
    """One fold's row: five figures each way, the two average recalls, their sum."""
    averages = [sum(way) / 3 for way in figures(similarity, ("r1", "r5", "r10"))]
    return [*itertools.chain(*figures(similarity, names)), *averages, 3 * sum(averages)]


def opens(folder: Path) -> Iterator[RecallCase]:
    for path in sorted(folder.glob("*.npz")):
        yield RecallCase(Case(path.stem, load_arrays(path)))


GOLDEN = Golden("recall", opens, {"(.+)": (lambda c, key: c.found.get(key), 1e-9)})  # counts and means, in float64
