"""How good grounders are: how often the box that a phrase finds is right, beside what needs no model to be found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.data.records import CaptionedImages, GroundedPhrase, Groundings
from saccade.features.splits import as_images
from saccade.language.tokenise import tokenise
from saccade.metrics.grounding import Hits, box_hits, grounding_report
from saccade.metrics.heat_maps import HeatBoxes
from saccade.metrics.pointing import inside, pointing_chance
from saccade.models import Grounder, Matcher
from saccade.tasks.evaluator import (
    PART,
    Arrays,
    EvalRequest,
    Evaluation,
    Evaluator,
    SplitForModels,
    mean_parts,
)
from saccade.tasks.grounding.locate import Located, area_power, load_grounder, locate, phrase_heat, read_phrases
from saccade.vision.boxes import around, iou

GroundingSplit = Groundings[CaptionedImages]
Boxes = Callable[[list[int]], list[np.ndarray]]  # of pictures, by their places
RIGHT = 0.5  # the overlap from which on a box is right
CENTRE = np.array([[0.1, 0.1, 0.9, 0.9]])
MIDDLE = np.array([0.5, 0.5])
MODEL, RANDOM, CENTRE_BOX, LARGEST_BOX = "model", "at random", "centre box", "largest box"


def token_span(text: str, phrase: GroundedPhrase) -> tuple[int, int]:
    """The tokens of a phrase, whose words are counted between blanks: the first, and the one after the last."""
    words = text.split()
    first, end = (len(tokenise(" ".join(words[:place]))) for place in (phrase.first, phrase.end))
    return first, end


def true_boxes(phrase: GroundedPhrase, several: str) -> Float[Tensor, "box 4"]:
    """Where what a phrase names is; with `several` "merged", one box around all of its boxes."""
    boxes = torch.tensor(phrase.boxes)
    return boxes if several == "any" else around(boxes)[None]


def right_regions(
    regions: Float[Tensor, "text region 4"],
    boxes: Float[Tensor, "text phrase box 4"],
    real: Bool[Tensor, "text phrase box"],
    cells: bool = False,
) -> Bool[Tensor, "text phrase region"]:
    """Which regions overlap a true box of a phrase enough to be right; of cells, which lie in one by half."""
    given, own = regions[:, None, :, None], boxes[:, :, None]
    if not cells:
        return ((iou(regions[:, None], boxes) >= RIGHT) & real[:, :, None]).any(dim=3)
    sides = (torch.minimum(given[..., 2:], own[..., 2:]) - torch.maximum(given[..., :2], own[..., :2])).clamp(min=0)
    area = (given[..., 2:] - given[..., :2]).prod(dim=4).clamp(min=1e-9)
    return ((sides.prod(dim=4) >= RIGHT * area) & real[:, :, None]).any(dim=3)


@dataclass(frozen=True, eq=False)
class Found:
    """Of every phrase of a split, in order: which picture it is about, of which kind it is, and what was right.

    Hits are those of the model and of what needs none: a candidate at random, the largest, a box in the middle.
    """

    picture: Int[np.ndarray, " phrase"]
    kind: tuple[str, ...]
    hits: Mapping[str, Hits]

    def report(self, row: str = MODEL) -> dict[str, float]:
        return grounding_report(self.hits[row], self.kind)


def phrase_hits(phrase: GroundedPhrase, found: Located) -> dict[str, dict[str, float]]:
    """What is right for one phrase, by row and figure."""
    truth, merged = (true_boxes(phrase, several).double() for several in ("any", "merged"))

    def right(boxes: np.ndarray, boxed: Tensor = truth) -> Bool[np.ndarray, " box"]:
        found = (iou(torch.from_numpy(np.asarray(boxes, dtype=np.float64)), boxed) >= RIGHT).any(dim=1)
        return np.asarray(found.numpy())

    candidates = right(found.every)
    sizes = (found.every[:, 2:] - found.every[:, :2]).prod(axis=1)
    largest = found.every[[int(sizes.argmax())]]
    middle = (largest[0, :2] + largest[0, 2:]) / 2
    return {
        MODEL: {
            **box_hits(right(found.boxes)),
            "accuracy_merged": float(right(found.boxes[:1], merged)[0]),
            "pointing": float(inside(found.point, phrase.boxes)),
            "upper_bound": float(candidates.any()),
        },
        RANDOM: {
            "accuracy": float(candidates.mean()),
            "accuracy_merged": float(right(found.every, merged).mean()),
            "pointing": pointing_chance(found.regions, phrase.boxes),
        },
        CENTRE_BOX: _of_one_box(right(CENTRE)[0], right(CENTRE, merged)[0], inside(MIDDLE, phrase.boxes)),
        LARGEST_BOX: _of_one_box(right(largest)[0], right(largest, merged)[0], inside(middle, phrase.boxes)),
    }


def _of_one_box(right: object, merged: object, points: object) -> dict[str, float]:
    return {"accuracy": float(bool(right)), "accuracy_merged": float(bool(merged)), "pointing": float(bool(points))}


@torch.no_grad()
def ground_all(
    model: Matcher | Grounder,
    data: GroundingSplit,
    batch_size: int = 64,
    how: HeatBoxes = "windows",
    proposals: Boxes | None = None,
) -> Found:
    """Every phrase of a split, in order."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    said = [n for n, phrases in enumerate(data.phrases) if phrases]
    owners = data.pictures.image_of_text
    places: list[int] = []
    kinds: list[str] = []
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    try:
        for start in range(0, len(said), batch_size):
            part = said[start : start + batch_size]
            pictures, place = np.unique(owners[part], return_inverse=True)
            regions = model.extract(data.images.batch(pictures.tolist()).to(device)).select(place)
            spans = [[token_span(data.texts[n], phrase) for phrase in data.phrases[n]] for n in part]
            texts, words = read_phrases(model, [data.texts[n] for n in part], spans)
            found_heat = phrase_heat(model, regions, texts.to(device), words.to(device))
            heat, boxes = (part.double().cpu().numpy() for part in found_heat[:2])
            mask = found_heat[2].cpu().numpy()
            given = None if proposals is None else proposals(owners[part].tolist())
            for row, n in enumerate(part):
                own = None if given is None else given[row]
                seen = heat[row, : len(data.phrases[n])][:, mask[row]]
                located = locate(seen, boxes[row][mask[row]], how, own, area_power(model))
                for phrase, found in zip(data.phrases[n], located, strict=True):
                    for name, hits in phrase_hits(phrase, found).items():
                        rows[name].append(hits)
                    places.append(int(owners[n]))
                    kinds.append(phrase.kind)
    finally:
        model.train(was_training)
    names = {row: list(judged[0]) for row, judged in rows.items()} or {MODEL: list(GroundingAccuracy.metrics)}
    table = {
        row: {name: np.array([one[name] for one in rows.get(row, [])]) for name in columns}
        for row, columns in names.items()
    }
    return Found(np.array(places, dtype=np.int64), tuple(kinds), table)


class GroundingAccuracy(Evaluator[Grounder, GroundingSplit]):
    """In per cent of the phrases that have a box."""

    metrics: ClassVar = {
        "accuracy": "accuracy at IoU 0.5",
        "accuracy_merged": "accuracy, merged boxes",
        "pointing": "pointing game",
        "recall_5": "R@5",
        "recall_10": "R@10",
        "upper_bound": "upper bound",
    }
    metric = "accuracy"
    columns = ("accuracy", "pointing", "recall_5", "upper_bound")
    unit = "Phrases in per cent"

    def evaluate(self, model: Grounder, data: GroundingSplit, settings: Any) -> dict[str, float]:
        report = ground_all(model, data, settings.eval_batch).report()
        return {name: report[name] for name in self.metrics}

    def measure(self, model: Grounder, data: GroundingSplit, settings: Any, folder: Path, tables: bool) -> Arrays:
        """Phrases of one picture are not independent: a picture's part is that of all its phrases."""
        found = ground_all(model, data, getattr(settings, "eval_batch", 64))
        figures = {**found.report(), **self.counts(data, settings)}
        kept = {name: np.asarray(value) for name, value in figures.items()}
        for name in ("accuracy", "pointing"):
            parts = np.zeros(len(data.images))
            np.add.at(parts, found.picture, mean_parts(found.hits[MODEL][name]))
            kept[PART + name] = parts
        return kept

    def counts(self, data: GroundingSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.images), "texts": sum(map(len, data.phrases))}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every model, beside boxes for which no model is needed."""
        from saccade.tasks.grounding.task import GroundingConfig

        splits, options = SplitForModels(request.data, request.split), request.options
        rows: dict[str, dict[str, float]] = {}
        data: GroundingSplit | None = None
        kinds: Counter[str] = Counter()
        for folder in request.models:
            model = load_grounder(folder, request.device)
            data = splits.regions_for(model, folder, "grounding")
            settings = request.settings.get(folder)
            batch = settings.eval_batch if isinstance(settings, GroundingConfig) else GroundingConfig().eval_batch
            others = None if options.proposals is None else boxes_of(request, data, options.proposals)
            found = ground_all(model, data, batch, options.heat_boxes, others)
            for name in (RANDOM, CENTRE_BOX, LARGEST_BOX) if found.kind else ():
                rows.setdefault(name, found.report(name))
            rows[folder] = found.report()
            kinds = Counter(found.kind)
        assert data is not None
        names, table = list(self.metrics), list[tuple[str, ...] | None]()
        for row, own in rows.items():
            table.append((row, *(f"{own[name]:.1f}" if name in own else "" for name in names)))
        for kind, count in kinds.most_common() if len(kinds) > 1 else ():
            table += [None, (f"{kind or 'other'} ({count:,})", *[""] * len(names))]
            for row, own in rows.items():
                cells = (own.get(f"{name}_{kind}") if name in ("accuracy", "pointing") else None for name in names)
                table.append((row, *("" if cell is None else f"{cell:.1f}" for cell in cells)))
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.images)} pictures, "
            f"{sum(map(len, data.phrases))} phrases; per cent",
            ("model", "accuracy", "merged", "pointing", "R@5", "R@10", "upper bound"),
            tuple(table),
            {
                "data": data.pictures.name,
                "split": data.pictures.split,
                "pictures": len(data.images),
                "phrases": dict(kinds.most_common()),
                "boxes": options.proposals or options.heat_boxes,
                "results": rows,
            },
        )


def boxes_of(request: EvalRequest, data: GroundingSplit, extractor: str) -> Boxes:
    """The boxes that another extractor finds in the pictures of a split."""
    from saccade.data.registry import open_records

    config = replace(request.data, extractor=extractor, in_memory=False)
    regions = as_images(open_records(config, request.split, "grounding").pictures, config, None).regions
    place = {id: n for n, id in enumerate(regions.ids)}

    def boxes(pictures: list[int]) -> list[np.ndarray]:
        batch = regions.batch([place[data.images.ids[n]] for n in pictures])
        return [own[real].double().numpy() for own, real in zip(batch.boxes, batch.mask, strict=True)]

    return boxes
