"""Dense captioners: mean average precision, which is a figure of a split and has no parts by picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from saccade.claims.captions import plain_scores
from saccade.claims.scores import Arrays, Scores
from saccade.claims.yardstick import SplitOf, Yardstick
from saccade.features.region_phrases import open_region_phrases
from saccade.models import DenseCap, Model
from saccade.tasks import dense_captioning_figures

if TYPE_CHECKING:
    from saccade.training.run import RunConfig


class DensePrecision(Yardstick):
    file = "scores.npz"
    metrics: ClassVar = {"map": "mAP", "detection_map": "mAP of boxes alone", "regions": "regions a picture"}
    metric = "map"
    columns = ("map", "detection_map", "regions")
    unit = "Mean average precision in per cent"

    def measure(
        self, model: Model, config: RunConfig, split: str, split_of: SplitOf, folder: Path, tables: bool
    ) -> Arrays:
        assert isinstance(model, DenseCap)
        data = open_region_phrases(config.data, split)
        figures = dense_captioning_figures(model, data, config.task)
        pictures = min(len(data.images), config.task.eval_pictures)
        texts = sum(len(phrases) for regions in data.regions[:pictures] for phrases in regions.phrases)
        kept = {name: np.asarray(value) for name, value in figures.items()}
        return kept | {"pictures": np.asarray(pictures), "texts": np.asarray(texts)}

    def scores(self, kept: Arrays) -> Scores:
        return plain_scores(self, kept)
