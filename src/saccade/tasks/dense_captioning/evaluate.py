"""How good dense captioners are: are the right boxes found, and the right words said of them?

Mean average precision is a figure of a split as a whole and has no parts by picture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from saccade.batch import PictureBatch
from saccade.decoding import DecodingConfig, decode
from saccade.features.splits import PhrasedPictures, open_region_phrases
from saccade.language import tokenise
from saccade.metrics.dense_captioning import Phrased, dense_captioning_map
from saccade.models import DenseCap, load_model
from saccade.tasks.evaluator import EvalRequest, Evaluation, Evaluator

DECODING = DecodingConfig(strategy="greedy", max_length=16)  # of phrases, unless options say otherwise


@dataclass(frozen=True)
class DensePhrase:
    """A region, how sure the model is that it is worth a phrase, and the phrase."""

    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in 0..1
    score: float
    phrase: str


@torch.no_grad()
def describe(
    model: DenseCap, pictures: PictureBatch, most: int | None = None, decoding: DecodingConfig | None = None
) -> list[list[DensePhrase]]:
    """The regions of each picture that are worth a phrase, surest first, and the phrases."""
    found = model.find(pictures.to(next(model.parameters()).device), most)
    counts = found.mask.sum(dim=1).tolist()
    if not sum(counts):
        return [[] for _ in counts]
    said = decode(model.writer, model.regions(found), decoding or DECODING).best()
    phrases = iter([model.writer.sentence(words) for words in said.words.tolist()])
    assert found.scores is not None
    return [
        [
            DensePhrase((x1, y1, x2, y2), score, next(phrases))
            for (x1, y1, x2, y2), score in zip(boxes[:count], scores[:count], strict=True)
        ]
        for count, boxes, scores in zip(counts, found.boxes.tolist(), found.scores.tolist(), strict=True)
    ]


class DensePrecision(Evaluator[DenseCap, PhrasedPictures]):
    """Mean average precision in per cent of a split, of all and of boxes alone, and how many regions were found."""

    metrics: ClassVar = {"map": "mAP", "detection_map": "mAP of boxes alone", "regions": "regions a picture"}
    metric = "map"
    columns = ("map", "detection_map", "regions")
    unit = "Mean average precision in per cent"

    def evaluate(self, model: DenseCap, data: PhrasedPictures, settings: Any) -> dict[str, float]:
        was_training, found = model.training, []
        model.eval()
        count = min(len(data.images), settings.eval_pictures)
        for start in range(0, count, settings.eval_batch):
            part = list(range(start, min(start + settings.eval_batch, count)))
            found += describe(model, data.pixels(part), settings.regions, settings.decoding)
        model.train(was_training)
        said = [
            Phrased(
                np.array([r.box for r in regions], dtype=np.float64).reshape(-1, 4),
                [[tokenise(r.phrase)] for r in regions],
                np.array([r.score for r in regions]),
            )
            for regions in found
        ]
        truth = [
            Phrased(
                true.boxes.astype(np.float64), [[tokenise(phrase) for phrase in phrases] for phrases in true.phrases]
            )
            for true in data.regions[:count]
        ]
        figures = {name: 100 * value for name, value in dense_captioning_map(said, truth).items()}
        return figures | {"regions": sum(map(len, found)) / max(count, 1)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """Each model on the whole of the split."""
        from saccade.tasks.dense_captioning.task import DenseCaptioningConfig

        data = open_region_phrases(request.data, request.split)
        rows = {}
        for folder in request.models:
            settings = request.settings.get(folder, DenseCaptioningConfig())
            model = load_model(folder, DenseCap).to(request.device)
            rows[folder] = self.evaluate(model, data, replace(settings, eval_pictures=len(data.images)))
        boxes = sum(len(regions.boxes) for regions in data.regions)
        return Evaluation(
            f"{data.name}/{data.split}: {len(data.images)} pictures, {boxes} boxes, {len(data.texts)} phrases",
            ("model", "mAP", "mAP of boxes", "regions a picture"),
            tuple((folder, *(f"{found[name]:.2f}" for name in self.columns)) for folder, found in rows.items()),
            {"data": data.name, "split": data.split, "results": rows},
        )

    def counts(self, data: PhrasedPictures, settings: Any) -> dict[str, int]:
        pictures = min(len(data.images), settings.eval_pictures)
        texts = sum(len(phrases) for regions in data.regions[:pictures] for phrases in regions.phrases)
        return {"pictures": pictures, "texts": texts}
