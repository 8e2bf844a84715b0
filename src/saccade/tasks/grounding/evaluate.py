"""How good grounders are: how often the region that a phrase finds is right, beside what the regions allow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.data.records import CaptionedImages, GroundedPhrase, Groundings
from saccade.language.tokenise import tokenise
from saccade.metrics.grounding import first_right, grounding_report
from saccade.models import Grounder, load_model
from saccade.tasks.evaluator import (
    PART,
    Arrays,
    EvalRequest,
    Evaluation,
    Evaluator,
    SplitForModels,
    mean_parts,
)
from saccade.vision.boxes import around, iou

GroundingSplit = Groundings[CaptionedImages]
HEADINGS = ("model", "accuracy", "R@5", "R@10", "upper bound")
RIGHT = 0.5  # the overlap from which on a region is right


def token_span(text: str, phrase: GroundedPhrase) -> tuple[int, int]:
    """The tokens of a phrase, whose words are counted between blanks: the first, and the one after the last."""
    words = text.split()
    first, end = (len(tokenise(" ".join(words[:place]))) for place in (phrase.first, phrase.end))
    return first, end


def true_boxes(phrase: GroundedPhrase, several: str) -> Float[Tensor, "box 4"]:
    """Where what a phrase names is; with `several` "merged", one box around all of its boxes."""
    boxes = torch.tensor(phrase.boxes)
    return boxes if several == "any" else around(boxes)[None]


def phrase_words(spans: list[list[tuple[int, int]]], words: int) -> Float[Tensor, "text phrase word"]:
    """1 at the words of each phrase, padded to as many phrases as any sentence has."""
    table = torch.zeros(len(spans), max(map(len, spans), default=0), words)
    for own, row in zip(spans, table, strict=True):
        for (first, end), phrase in zip(own, row, strict=False):
            phrase[first:end] = 1
    return table


def right_regions(
    regions: Float[Tensor, "text region 4"],
    boxes: Float[Tensor, "text phrase box 4"],
    real: Bool[Tensor, "text phrase box"],
) -> Bool[Tensor, "text phrase region"]:
    """Which regions overlap a true box of a phrase enough to be right."""
    shared = iou(regions[:, None], boxes) * real[:, :, None]
    return (shared >= RIGHT).any(dim=3)


@dataclass(frozen=True, eq=False)
class Places:
    """Of every phrase of a split: which picture it is about, the place of its first right region, and how likely a
    region drawn at random is right."""

    picture: Int[np.ndarray, " phrase"]
    place: Int[np.ndarray, " phrase"]
    chance: Float[np.ndarray, " phrase"]


@torch.no_grad()
def ground_all(model: Grounder, data: GroundingSplit, batch_size: int = 64, several: str = "any") -> Places:
    """Every phrase of a split, in order."""
    device = next(model.parameters()).device
    was_training, found = model.training, []
    model.eval()
    said = [n for n, phrases in enumerate(data.phrases) if phrases]
    owners = data.pictures.image_of_text
    try:
        for start in range(0, len(said), batch_size):
            part = said[start : start + batch_size]
            pictures, place = np.unique(owners[part], return_inverse=True)
            regions = model.extract(data.images.batch(pictures.tolist()).to(device)).select(place)
            texts = model.read([data.texts[n] for n in part]).to(device)
            spans = [[token_span(data.texts[n], phrase) for phrase in data.phrases[n]] for n in part]
            logits = model.ground(regions, texts, phrase_words(spans, texts.tokens.shape[1]).to(device))
            scores, mask = logits.float().cpu().numpy(), regions.mask.cpu().numpy()
            for row, n in enumerate(part):
                truth = [true_boxes(phrase, several) for phrase in data.phrases[n]]
                boxes = regions.boxes[row][regions.mask[row]].float().cpu()
                right = np.stack([(iou(boxes, own) >= RIGHT).any(dim=1).numpy() for own in truth])
                places = first_right(scores[row, : len(truth)][:, mask[row]], right)
                found.append((np.full(len(truth), owners[n]), places, right.sum(axis=1) / max(len(boxes), 1)))
    finally:
        model.train(was_training)
    empty = (np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    return Places(*(np.concatenate(columns) for columns in zip(empty, *found, strict=True)))


class GroundingAccuracy(Evaluator[Grounder, GroundingSplit]):
    """In per cent of the phrases that have a box."""

    metrics: ClassVar = {
        "accuracy": "accuracy at IoU 0.5",
        "recall_5": "R@5",
        "recall_10": "R@10",
        "upper_bound": "upper bound",
    }
    metric = "accuracy"
    columns = ("accuracy", "recall_5", "upper_bound")
    unit = "Phrases in per cent"

    def evaluate(self, model: Grounder, data: GroundingSplit, settings: Any) -> dict[str, float]:
        return grounding_report(ground_all(model, data, settings.eval_batch, settings.several).place)

    def measure(self, model: Grounder, data: GroundingSplit, settings: Any, folder: Path, tables: bool) -> Arrays:
        """Phrases of one picture are not independent: a picture's part is that of all its phrases."""
        found = ground_all(model, data, settings.eval_batch, settings.several)
        figures = {**grounding_report(found.place), **self.counts(data, settings)}
        parts = np.zeros(len(data.images))
        np.add.at(parts, found.picture, mean_parts((found.place < 1).astype(float)))
        return {**{name: np.asarray(value) for name, value in figures.items()}, f"{PART}accuracy": parts}

    def counts(self, data: GroundingSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.images), "texts": sum(map(len, data.phrases))}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every model, beside a region drawn at random."""
        from saccade.tasks.grounding.task import GroundingConfig

        splits = SplitForModels(request.data, request.split)
        rows: dict[str, dict[str, float]] = {}
        data: GroundingSplit | None = None
        for folder in request.models:
            model = load_model(folder, Grounder).to(request.device)
            data = splits.regions_for(model, folder)
            settings = request.settings.get(folder, GroundingConfig())
            found = ground_all(model, data, settings.eval_batch, settings.several)
            rows.setdefault("at random", {"accuracy": 100 * float(found.chance.mean())} if len(found.chance) else {})
            rows[folder] = grounding_report(found.place)
        assert data is not None
        names = list(self.metrics)
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.images)} pictures, "
            f"{sum(map(len, data.phrases))} phrases; per cent",
            HEADINGS,
            tuple((row, *(f"{own[name]:.1f}" if name in own else "" for name in names)) for row, own in rows.items()),
            {"data": data.pictures.name, "split": data.pictures.split, "results": rows},
        )
