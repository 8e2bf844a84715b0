"""Figures of tasks: recall of moments, pointing and boxes of phrases, retrieval of relations, clicks.

A case is metrics.npz, with the inputs and what is found for each of them, and expected.json, with the figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.harness import Case, Golden, memo
from saccade.metrics.clicks import grouped_auc, log_loss
from saccade.metrics.detection import average_precision
from saccade.metrics.moments import moment_recall, temporal_iou
from saccade.metrics.pointing import attention_correctness, map_points_at
from saccade.metrics.relations import ELEVEN, right_pairs
from saccade.metrics.statistics import roc_auc
from saccade.vision.boxes import around, iou

EXACT = 1e-9  # float64 on both sides
RECALL = re.compile(r"(nms )?R@(\d+),IoU=([\d.]+)")
KINDS = {"11": "11", "11point": "11", "all_points": "all_points", "no_interp": "no_interp"}


class MetricsCase:
    def __init__(self, case: Case) -> None:
        self.case = case

    @cached_property
    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each query the predicted ones, best first, and the true one."""
        return self.case.take("temporal_pred")[..., :2], self.case.take("temporal_gt")

    def moment(self, name: str) -> float | None:
        predicted, truth = self.spans
        if name == "mIoU":
            return float(temporal_iou(predicted[:, 0], truth).mean())
        if (found := RECALL.fullmatch(name)) is None:
            return None
        count, overlap = int(found[2]), float(found[3])
        (value,) = moment_recall([*predicted], truth, (count,), (overlap,), nms=bool(found[1])).values()
        return value

    @cached_property
    def phrases(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Heat map, true boxes and predicted box of each; a row of −1 is no box."""
        names = ("phrase_heat", "phrase_gt", "phrase_pred")
        rows = zip(*(self.case.take(name) for name in names), strict=True)
        return [(heat, truth[(truth >= 0).all(axis=1)].astype(np.float64), box) for heat, truth, box in rows]

    def phrase_each(self, name: str) -> np.ndarray | None:
        if name == "hit":
            return np.array([map_points_at(heat, truth) for heat, truth, _ in self.phrases])
        if name == "correctness":
            return np.array([attention_correctness(heat, truth) for heat, truth, _ in self.phrases])
        found = []
        for _, truth, box in self.phrases:
            boxes = torch.from_numpy(truth)
            boxes = boxes if name == "ok_any" else around(boxes)[None]
            found.append(bool((iou(torch.from_numpy(box)[None].double(), boxes) >= 0.5).any()))
        return np.array(found)

    def phrase(self, name: str) -> float | None:
        each = {
            "pointing": "hit",
            "acc_iou50_any": "ok_any",
            "acc_iou50_union": "ok_union",
            "attention_correctness": "correctness",
        }
        found = self.phrase_each(each[name]) if name in each else None
        return None if found is None else float(found.mean())

    @memo
    def right(self, which: str) -> np.ndarray:
        found, true = self.case.take(f"rel_det_{which}"), self.case.take(f"rel_gt_{which}")
        return right_pairs(found[:, 0], found[:, 1:9], true[:, 0], true[:, 1:9], inclusive=True)

    def precisions(self, kind: str) -> list[float] | None:
        if kind not in KINDS:
            return None
        classes = sorted(int(key.removeprefix("rel_gt_")) for key in self.case.stored if key.startswith("rel_gt_"))
        levels, smooth = (ELEVEN if KINDS[kind] == "11" else None), KINDS[kind] != "no_interp"
        return [
            average_precision(self.right(str(n)), len(self.case.take(f"rel_gt_{n}")), levels, smooth) for n in classes
        ]

    def mean_precision(self, kind: str) -> float | None:
        found = self.precisions(kind)
        return None if found is None else float(np.mean(found))

    def click(self, name: str) -> float | None:
        users, clicked, scores = (self.case.take(f"ctr_{part}") for part in ("user", "y", "p"))
        if name == "AUC":
            return roc_auc(scores[clicked == 1], scores[clicked != 1])
        if name == "LogLoss":
            return log_loss(clicked, scores)
        grouped = dict(zip(("GAUC", "GAUC_weight"), grouped_auc(users, clicked, scores), strict=True))
        return grouped.get(name)


def opens(folder: Path) -> Iterator[MetricsCase]:
    for path in sorted(folder.glob("**/metrics.npz")):
        stored, beside = read_npz(path), path.with_name("expected.json")
        expected = read_json(beside)
        if not isinstance(expected, dict) or not all(isinstance(part, dict) for part in expected.values()):
            raise SaccadeError(f"{beside}: figures by name, by task, were expected")
        for task, figures in expected.items():
            for name, value in figures.items():
                try:
                    stored[f"{task} {name}"] = np.asarray(value, dtype=np.float64)
                except (TypeError, ValueError) as error:
                    raise SaccadeError(f'{beside}: "{name}" of {task} is no number') from error
        yield MetricsCase(Case(path.parent.name if path.parent != folder else "task_metrics", stored))


GOLDEN = Golden(
    "task_metrics",
    opens,
    {
        "temporal_iou": (lambda c: temporal_iou(c.spans[0], c.spans[1][:, None]), EXACT),
        "temporal_iou_hull": (lambda c: temporal_iou(c.spans[0], c.spans[1][:, None], hull=True), EXACT),
        "phrase_(hit|ok_any|ok_union)": (MetricsCase.phrase_each, 0.0),
        r"rel_tp_(\d+)": (MetricsCase.right, 0.0),
        "temporal (.+)": (MetricsCase.moment, EXACT),
        "phrase (.+)": (MetricsCase.phrase, EXACT),
        "relation AP_(.+)": (MetricsCase.precisions, EXACT),
        "relation mAP_(.+)": (MetricsCase.mean_precision, EXACT),
        "ctr (.+)": (MetricsCase.click, EXACT),
    },
)
