"""How good click predictors are: AUC over all impressions, GAUC within users, and the log loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from saccade.core.errors import SaccadeError
from saccade.data.clicks import Clicks, ImpressionRows
from saccade.metrics.clicks import click_intervals, grouped_auc, log_loss, log_losses, user_aucs
from saccade.metrics.statistics import roc_auc
from saccade.models import ClickPredictor, load_model
from saccade.tasks.clicks.batches import (
    ALL_ITEMS,
    ItemTable,
    kind_places,
    whole_batch,
    with_all_items,
    with_own_items,
)
from saccade.tasks.evaluator import PART, Arrays, EvalRequest, Evaluation, Evaluator, SplitForModels

MAIN = "auc"
CONSTANT, TRUTH = "constant", "truth"  # one probability for all; those that clicks were drawn with
HEADINGS = ("model", "AUC", "GAUC", "LogLoss")


@dataclass(frozen=True, eq=False)
class Predicted:
    """Impressions with the probabilities of a click."""

    users: Int64[np.ndarray, " impression"]
    clicked: Float32[np.ndarray, " impression"]
    probability: Float64[np.ndarray, " impression"]

    def __post_init__(self) -> None:
        if not 0 < self.clicked.sum() < len(self.clicked):
            raise SaccadeError("AUC needs impressions that were clicked on and others: here all are of one kind")

    def figures(self) -> dict[str, float]:
        """AUC and GAUC in per cent, LogLoss as it is."""
        yes = self.clicked == 1
        return {
            "auc": 100 * roc_auc(self.probability[yes], self.probability[~yes]),
            "gauc": 100 * grouped_auc(self.users, self.clicked, self.probability)[0],
            "logloss": log_loss(self.clicked, self.probability),
        }

    def intervals(self) -> dict[str, tuple[float, float]]:
        found = click_intervals(self.users, self.clicked, self.probability)
        return {
            name: (low, high) if name == "logloss" else (100 * low, 100 * high) for name, (low, high) in found.items()
        }


def parts_of(data: Clicks, settings: Any, longest: int) -> Iterator[ImpressionRows]:
    """The impressions of a split, some at a time, block after block."""
    left = settings.eval_limit or len(data)
    start = 0
    for size in data.impressions.blocks:
        for first in range(start, start + min(size, left), settings.eval_batch):
            after = min(first + settings.eval_batch, start + min(size, left))
            yield data.impressions.rows(np.arange(first, after), longest)
        start, left = start + size, left - min(size, left)


@torch.no_grad()
def predict_clicks(model: ClickPredictor, data: Clicks, settings: Any) -> Predicted:
    """Of every impression that is measured."""
    device = next(model.parameters()).device
    small = len(data.catalogue) <= ALL_ITEMS
    table = ItemTable(model, data.catalogue, device if small else "cpu")
    kinds = kind_places(model, data.impressions)
    was_training = model.training
    model.eval()
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    try:
        for rows in parts_of(data, settings, model.config.history):
            batch = whole_batch(rows, kinds)
            batch = with_all_items(batch.to(device), table) if small else with_own_items(batch, table.take).to(device)
            chance = model(batch).double().sigmoid()
            found.append((rows.user, rows.clicked, chance.cpu().numpy()))
    finally:
        model.train(was_training)
    users, clicked, chances = (np.concatenate(column) for column in zip(*found, strict=True))
    return Predicted(users, clicked, chances)


class ClickQuality(Evaluator[ClickPredictor, Clicks]):
    metrics: ClassVar = {"auc": "AUC", "gauc": "GAUC", "logloss": "LogLoss"}
    metric = "gauc"
    columns = ("auc", "gauc")
    unit = "Areas under the ROC curve in per cent, over all impressions and within users"

    def evaluate(self, model: ClickPredictor, data: Clicks, settings: Any) -> dict[str, float]:
        return predict_clicks(model, data, settings).figures()

    def measure(self, model: ClickPredictor, data: Clicks, settings: Any, folder: Path, tables: bool) -> Arrays:
        """A user adds to GAUC and LogLoss; AUC is of the split as a whole."""
        found = predict_clicks(model, data, settings)
        number = np.unique(found.users, return_inverse=True)[1]
        areas, weights = user_aucs(number, found.clicked, found.probability)
        losses = np.bincount(number, log_losses(found.clicked, found.probability))
        kept = {name: np.asarray(value) for name, value in found.figures().items()}
        kept |= {"pictures": np.asarray(len(areas)), "texts": np.asarray(len(number))}
        kept[PART + "gauc"] = 100 * areas * weights / max(int(weights.sum()), 1)
        kept[PART + "logloss"] = losses / len(number)
        return kept

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every model, between what needs none and what none can beat."""
        from saccade.tasks.clicks.task import ClicksConfig

        splits = SplitForModels(request.data, request.split)
        rows: dict[str, Predicted] = {}
        data: Clicks | None = None
        for folder in request.models:
            model = load_model(folder, ClickPredictor).to(request.device)
            data = splits.regions_for(model, folder)
            assert data is not None
            found = predict_clicks(model, data, request.settings.get(folder, ClicksConfig()))
            if not rows:
                rate = np.full(len(found.clicked), float(found.clicked.mean()))
                rows[CONSTANT] = Predicted(found.users, found.clicked, rate)
            rows[folder] = found
        if data is not None and data.truth is not None and len(data.truth) == len(found.clicked):
            rows[TRUTH] = Predicted(found.users, found.clicked, data.truth)
        assert data is not None
        figures = {name: own.figures() for name, own in rows.items()}
        intervals = {name: own.intervals() for name, own in rows.items()}
        users = len(np.unique(found.users))
        return Evaluation(
            f"{data.name}/{data.split}: {len(found.clicked):,} impressions of {users:,} users, "
            f"{100 * float(found.clicked.mean()):.1f} % clicked on; AUC and GAUC in per cent, in brackets the middle "
            "95 % over users",
            HEADINGS,
            tuple(
                (name, *(shown(metric, own[metric], intervals[name][metric]) for metric in self.metrics))
                for name, own in figures.items()
            ),
            {
                "data": data.name,
                "split": data.split,
                "impressions": len(found.clicked),
                "users": users,
                "results": figures,
                "intervals": intervals,
            },
            ("less than 0.1 of AUC (0.001 as a share) is no difference: seeds move it as much",),
        )


def shown(metric: str, value: float, interval: tuple[float, float]) -> str:
    digits = 4 if metric == "logloss" else 2
    return f"{value:.{digits}f} ({interval[0]:.{digits}f}–{interval[1]:.{digits}f})"
