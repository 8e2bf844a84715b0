"""How good relation detectors are: mean average precision of retrieving, for each triplet, its true pairs of boxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.data.records import CaptionedImages, Relations
from saccade.metrics.detection import precision_of_ranks
from saccade.metrics.relations import right_by_overlap
from saccade.models import Relater, load_model
from saccade.models.base.relater import RegionPairs, Transfer
from saccade.tasks.evaluator import EvalRequest, Evaluation, Evaluator, SplitForModels
from saccade.vision.boxes import WHOLE, iou
from saccade.vision.extractors import TRUE_BOXES

RelationSplit = Relations[CaptionedImages]
Names = tuple[str, str, str]
RARE = 10  # a triplet seen less often in training is rare, as HICO-DET counts
HEADINGS = ("model", "mAP", "seen", "rare", "unseen")


def pair_candidates(boxes: Float[Tensor, "region 4"]) -> Int[Tensor, "pair 2"]:
    """All ordered pairs of two regions, without a region that is the whole picture."""
    whole = (boxes == boxes.new_tensor(WHOLE)).all(dim=1)
    real = (~whole)[:, None] & (~whole)[None] & ~torch.eye(len(boxes), dtype=torch.bool, device=boxes.device)
    return real.nonzero()


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Every triplet of a split that a model knows the words of, and its average precision."""

    triplets: tuple[tuple[int, int, int], ...]
    precision: Float[np.ndarray, " triplet"]
    occurrences: Float[np.ndarray, " triplet"]  # in training
    pairs: int  # that are true
    unknown: int  # true ones of words that the model does not know

    def report(self, model: Relater, by_predicate: bool = False) -> dict[str, float]:
        """In per cent: over all triplets, those seen, seen but less than ten times, unseen, and unseen by predicate."""
        seen = self.occurrences > 0
        groups = {
            "map": np.ones_like(seen),
            "map_seen": seen,
            "map_rare": seen & (self.occurrences < RARE),
            "map_unseen": ~seen,
        }
        predicate = np.array([model.config.predicates[r] for _, r, _ in self.triplets])
        for name in dict.fromkeys(predicate[~seen].tolist()) if by_predicate else ():
            groups[f"map_unseen_{name.replace(' ', '_')}"] = ~seen & (predicate == name)
        return {name: 100 * float(self.precision[own].mean()) for name, own in groups.items() if own.any()}


def known_places(model: Relater, triplets: set[Names]) -> Iterator[tuple[int, int, int]]:
    """Those whose words the model knows, as places."""
    classes = {name: n for n, name in enumerate(model.config.classes) if n}
    predicates = {name: n for n, name in enumerate(model.config.predicates) if n}
    for subject, predicate, thing in sorted(triplets):
        if subject in classes and thing in classes and predicate in predicates:
            yield classes[subject], predicates[predicate], classes[thing]


@torch.no_grad()
def retrieve(
    model: Relater,
    data: RelationSplit,
    batch_size: int = 32,
    transfer: Transfer = "unseen",
    at_random: bool = False,
) -> Retrieval:
    """Score every pair of regions of every picture for every triplet of the split; or give all a random score."""
    named = [triplet for own in data.things for triplet in own.named()]
    triplets = tuple(known_places(model, set(named)))
    place = {triplet: n for n, triplet in enumerate(triplets)}
    device = next(model.parameters()).device
    dice = np.random.default_rng(0)
    scores: list[np.ndarray] = []  # [pair, triplet] of each picture
    right: dict[int, list[np.ndarray]] = defaultdict(list)  # of a triplet: places of its right pairs among all
    total, first, was_training = np.zeros(len(triplets), dtype=np.int64), 0, model.training
    model.eval()
    try:
        targets = model.encode_triplets(torch.tensor(triplets, dtype=torch.long, device=device).view(-1, 3), transfer)
        for start in range(0, len(data.things), batch_size):
            part = range(start, min(start + batch_size, len(data.things)))
            regions = model.extract(data.images.batch(list(part)).to(device))
            for row, n in enumerate(part):
                boxes = regions.boxes[row][regions.mask[row]]
                pairs = pair_candidates(boxes)
                image = torch.full_like(pairs[:, 0], row)
                found = (
                    dice.random((len(pairs), len(triplets)), dtype=np.float32)
                    if at_random
                    else model.score(RegionPairs.of(regions, image, *pairs.unbind(dim=1)), targets)
                    .float()
                    .cpu()
                    .numpy()
                )
                scores.append(found)
                overlap = iou(boxes.cpu().float(), torch.from_numpy(np.array(data.things[n].boxes))).numpy()
                ends = pairs.cpu().numpy()
                for column, true in true_pairs(model, data, n, place).items():
                    total[column] += len(true)
                    shared = np.minimum(overlap[ends[:, 0]][:, true[:, 0]], overlap[ends[:, 1]][:, true[:, 1]])
                    order = np.argsort(-found[:, column], kind="stable")
                    right[column].append(first + order[right_by_overlap(shared[order])])
                first += len(pairs)
    finally:
        model.train(was_training)
    precision = np.zeros(len(triplets))
    table = np.concatenate([np.zeros((0, len(triplets)), np.float32), *scores]).T.copy()  # [triplet, pair]
    for column, hits in right.items():
        ranks = ranks_of(table[column], np.concatenate(hits))
        precision[column] = precision_of_ranks(ranks, int(total[column]))
    counts = np.array([model.counts.get(triplet, 0.0) for triplet in triplets])
    return Retrieval(triplets, precision, counts, int(total.sum()), len(named) - int(total.sum()))


def ranks_of(scores: Float[np.ndarray, " pair"], chosen: Int[np.ndarray, " right"]) -> Int[np.ndarray, " right"]:
    """The ranks of chosen pairs, in rising order: of equal scores the first goes first. A triplet has few true pairs
    among tens of thousands, which need not be sorted for them."""
    above = [np.count_nonzero(scores > scores[n]) + np.count_nonzero(scores[:n] == scores[n]) for n in chosen]
    return np.sort(np.array(above, dtype=np.int64))


def true_pairs(
    model: Relater, data: RelationSplit, picture: int, place: dict[tuple[int, int, int], int]
) -> dict[int, np.ndarray]:
    """Of each triplet that is true in a picture, by its column, the things of every pair."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    things = data.things[picture]
    classes, predicates = model.config.classes, model.config.predicates
    for (s, _, o), (subject, predicate, thing) in zip(things.relations, things.named(), strict=True):
        if subject in classes and thing in classes and predicate in predicates:
            triplet = classes.index(subject), predicates.index(predicate), classes.index(thing)
            found[place[triplet]].append((s, o))
    return {column: np.array(pairs) for column, pairs in found.items()}


class RelationPrecision(Evaluator[Relater, RelationSplit]):
    """In per cent, means over triplets."""

    metrics: ClassVar = {
        "map": "mAP",
        "map_seen": "mAP of seen triplets",
        "map_rare": "mAP of triplets seen less than ten times",
        "map_unseen": "mAP of unseen triplets",
    }
    metric = "map_unseen"
    columns = ("map", "map_seen", "map_rare", "map_unseen")
    unit = "Mean average precision in per cent"

    def evaluate(self, model: Relater, data: RelationSplit, settings: Any) -> dict[str, float]:
        return retrieve(model, data, settings.eval_batch, settings.transfer).report(model)

    def counts(self, data: RelationSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.things), "texts": sum(len(own.relations) for own in data.things)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """Two rows for every model, with transfer and without, beside pairs in an order drawn at random."""
        from saccade.tasks.relations.task import RelationsConfig

        rows: dict[str, dict[str, float]] = {}
        notes: list[str] = []
        data: RelationSplit | None = None
        for folder in request.models:
            model = load_model(folder, Relater).to(request.device)
            if request.options.mixture is not None:
                model.config = replace(model.config, mixture=request.options.mixture)
            model.extractor = with_boxes(model.extractor, request.options.boxes)
            data = SplitForModels(request.data, request.split).regions_for(model, folder)
            assert data is not None
            settings = request.settings.get(folder, RelationsConfig())
            found = retrieve(model, data, settings.eval_batch, settings.transfer)
            if not rows:
                rows["at random"] = retrieve(model, data, settings.eval_batch, at_random=True).report(model, True)
            rows[folder] = found.report(model, True)
            if settings.transfer != "none":
                rows[f"{folder} without transfer"] = retrieve(model, data, settings.eval_batch, "none").report(
                    model, True
                )
            unseen = int((found.occurrences == 0).sum())
            notes.append(
                f"{folder}: {len(found.triplets)} triplets, {unseen} of them unseen, {found.pairs} true pairs; "
                f"{found.unknown} pairs of unknown words are left out; regions of {model.extractor}"
            )
        assert data is not None
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.things)} pictures; average precision in per cent",
            HEADINGS,
            tuple(
                (row, *(f"{own[name]:.1f}" if name in own else "–" for name in self.columns))
                for row, own in rows.items()
            ),
            {"data": data.pictures.name, "split": data.pictures.split, "results": rows},
            tuple(notes),
        )


def with_boxes(extractor: str | None, boxes: str | None) -> str | None:
    """The extractor's own boxes, or the true ones in their place."""
    if extractor is None or boxes is None:
        return extractor
    plain = extractor.removeprefix(TRUE_BOXES).removeprefix(":") or "world"
    if boxes == "proposed":
        return plain
    return TRUE_BOXES if plain == "world" else f"{TRUE_BOXES}:{plain}"
