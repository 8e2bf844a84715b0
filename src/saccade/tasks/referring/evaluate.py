"""How good referrers are: how often they choose the right box, among those of the record or those that a detector
proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import UNKNOWN, CandidateBatch, RegionBatch, StepBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import Candidates, CaptionedImages, Referrals
from saccade.metrics.answers import by_kind
from saccade.models import Referrer, load_model
from saccade.tasks.evaluator import PART, Arrays, EvalRequest, Evaluation, Evaluator, SplitForModels, mean_parts
from saccade.tasks.referring import EvalOptions
from saccade.vision import load_extractor
from saccade.vision.boxes import WHOLE, iou

ReferringSplit = Referrals[CaptionedImages]
RIGHT = 0.5  # the overlap from which on a proposed box is right
TIED = 1e-6  # logits that differ by less say the same


class Choice(NamedTuple):
    """Of some texts: which boxes of their pictures they choose among, and what these are."""

    place: Int[Tensor, "text candidate"]
    mask: Bool[Tensor, "text candidate"]
    categories: Int[Tensor, "text candidate"]


def choice_of(model: Referrer, data: ReferringSplit, texts: Sequence[int]) -> Choice:
    rows = [data.choices[n] for n in texts]
    place = torch.zeros(len(rows), max(map(len, rows), default=0), dtype=torch.long)
    mask, categories = torch.zeros(place.shape, dtype=torch.bool), torch.zeros_like(place)
    for row, (n, own) in enumerate(zip(texts, rows, strict=True)):
        names = data.candidates[int(data.pictures.image_of_text[n])].categories
        place[row, : len(own)] = torch.tensor(own)
        mask[row, : len(own)] = True
        categories[row, : len(own)] = torch.tensor(model.category_ids([names[i] for i in own]))
    return Choice(place, mask, categories)


def candidates_of(boxes: RegionBatch, owner: Int[Tensor, " text"], choice: Choice) -> CandidateBatch:
    """From the boxes of pictures to those that each text chooses among."""
    rows = owner[:, None].expand_as(choice.place)
    real = choice.mask[..., None]
    found = boxes.features[rows, choice.place] * real, choice.mask, boxes.boxes[rows, choice.place] * real
    return CandidateBatch(*found, choice.categories)


def shown_images(images: RegionBatch, shown: str) -> RegionBatch:
    """Without pictures, one region of ones stands for them."""
    if shown in ("both", "picture"):
        return images
    one = torch.ones_like(images.features[:, :1])
    return RegionBatch(one, torch.ones_like(images.mask[:, :1]), images.boxes[:, :1])


def shown_candidates(candidates: CandidateBatch, shown: str) -> CandidateBatch:
    """Candidates that all look alike; in `text` they are also all at one place, and nothing is known of them."""
    if shown in ("both", "picture"):
        return candidates
    blind = replace(candidates, features=torch.ones_like(candidates.features) * candidates.mask[..., None])
    if shown == "boxes":
        return blind
    return replace(blind, boxes=torch.zeros_like(blind.boxes), categories=torch.zeros_like(blind.categories))


def shown_texts(texts: StepBatch, shown: str) -> StepBatch:
    """Without texts, one unknown word stands for them."""
    if shown != "picture":
        return texts
    token = torch.full_like(texts.tokens[:, :1, :1], UNKNOWN)
    return StepBatch(token, torch.ones_like(token, dtype=torch.bool))


@torch.no_grad()
def choose_all(
    model: Referrer, data: ReferringSplit, batch_size: int = 256, shown: str = "both"
) -> list[Float[np.ndarray, " candidate"]]:
    """The logits of every text's candidates, in order."""
    device = next(model.parameters()).device
    was_training, found = model.training, []
    model.eval()
    owners = data.pictures.image_of_text
    assert data.features is not None
    try:
        for first in range(0, len(data.texts), batch_size):
            part = list(range(first, min(first + batch_size, len(data.texts))))
            pictures, place = np.unique(owners[part], return_inverse=True)
            owner = torch.as_tensor(place, dtype=torch.long, device=device)
            images = model.extract(data.images.batch(pictures.tolist()).to(device)).select(owner)
            choice = Choice(*(value.to(device) for value in choice_of(model, data, part)))
            boxes = candidates_of(data.features.batch(pictures.tolist()).to(device), owner, choice)
            texts = model.read_spoken([data.spoken[n] for n in part]).to(device)
            given = shown_images(images, shown), shown_candidates(boxes, shown), shown_texts(texts, shown)
            logits = model.refer(*given).logits.float().cpu().numpy()
            found += [row[: len(data.choices[n])] for row, n in zip(logits, part, strict=True)]
    finally:
        model.train(was_training)
    return found


def rightness(logits: Float[np.ndarray, " candidate"], right: Bool[np.ndarray, " candidate"]) -> float:
    """1 if the best candidate is right; of several that are equally good, the share that is."""
    best = logits >= logits.max() - TIED * max(1.0, abs(float(logits.max())))
    return float(right[best].mean())


def targets_of(data: ReferringSplit) -> list[Bool[np.ndarray, " candidate"]]:
    return [np.arange(len(own)) == target for own, target in zip(data.choices, data.targets, strict=True)]


def proposed_split(model: Referrer, data: ReferringSplit, batch_size: int = 64) -> ReferringSplit:
    """The same texts choosing among what the model's own extractor found, by the names it has for that.

    Raises: SaccadeError if the extractor proposes nothing.
    """
    extractor = None if model.extractor is None else load_extractor(model.extractor)
    if extractor is None or not extractor.has_names:
        raise SaccadeError(f'the extractor "{model.extractor}" proposes no things: --proposed needs a detector')
    found: list[Candidates] = []
    for first in range(0, len(data.images), batch_size):
        regions = data.pictures.regions.batch(range(first, min(first + batch_size, len(data.images))))
        for boxes, mask, named in zip(regions.boxes, regions.mask, extractor.recognise(regions), strict=True):
            found.append(Candidates(boxes[mask].numpy(), tuple(one.labels.get("kind", "") for one in named)))
    whole = np.array(WHOLE, np.float32)
    things = [tuple(np.flatnonzero((own.boxes != whole).any(axis=1)).tolist()) or (0,) for own in found]
    choices = tuple(things[owner] for owner in data.pictures.image_of_text.tolist())
    zeros = (0,) * len(choices)
    return Referrals(data.pictures, data.spoken, tuple(found), choices, zeros, data.kinds, data.pictures.regions)


def right_proposals(data: ReferringSplit, proposed: ReferringSplit) -> list[Bool[np.ndarray, " candidate"]]:
    """Which of the proposed boxes overlap the true one enough."""
    right = []
    for n, owner in enumerate(data.pictures.image_of_text.tolist()):
        true = data.candidates[owner].boxes[[data.choices[n][data.targets[n]]]]
        boxes = proposed.candidates[owner].boxes[list(proposed.choices[n])]
        right.append((iou(torch.from_numpy(boxes), torch.from_numpy(true))[:, 0] >= RIGHT).numpy())
    return right


def read_texts(data: ReferringSplit, reads: str) -> ReferringSplit:
    """The expressions or the dialogs alone. Raises: SaccadeError if there are none."""
    if reads == "both":
        return data
    wanted = reads == "dialogs"
    kept = [n for n, dialog in enumerate(data.dialogs) if dialog == wanted]
    if not kept:
        raise SaccadeError(f"{data.pictures.name}/{data.pictures.split} has no {reads}: task.reads must be another")
    return data if len(kept) == len(data.texts) else data.of_texts(kept)


def among_all(data: ReferringSplit) -> ReferringSplit:
    """Every text chooses among all boxes of its picture, as it must where a detector finds them.

    A box that stands there twice, as two types of thing, is a choice once.
    """
    choices, targets = [], []
    for n, owner in enumerate(data.pictures.image_of_text.tolist()):
        boxes, meant = data.candidates[owner].boxes, data.choices[n][data.targets[n]]
        own = [i for i in range(len(boxes)) if i == meant or not np.array_equal(boxes[i], boxes[meant])]
        choices.append(tuple(own))
        targets.append(own.index(meant))
    return replace(data, choices=tuple(choices), targets=tuple(targets))


def read_split(data: ReferringSplit, settings: Any) -> ReferringSplit:
    """The texts that a task reads, and the boxes that each chooses among."""
    read = read_texts(data, settings.reads)
    return among_all(read) if settings.among == "all" else read


class ReferringAccuracy(Evaluator[Referrer, ReferringSplit]):
    """How often the right candidate is chosen, in per cent."""

    metrics: ClassVar = {
        "accuracy": "accuracy",
        "expressions": "accuracy of expressions",
        "dialogs": "accuracy of dialogs",
        "chance": "at random",
    }
    metric = "accuracy"
    columns = ("accuracy", "chance")
    unit = "Accuracy in per cent"

    def evaluate(self, model: Referrer, data: ReferringSplit, settings: Any) -> dict[str, float]:
        data = read_split(data, settings)
        return self.figures(data, self.each(model, data, settings), targets_of(data))

    def each(self, model: Referrer, data: ReferringSplit, settings: Any) -> Float[np.ndarray, " text"]:
        """Whether each text's choice is right."""
        logits = choose_all(model, data, settings.eval_batch, settings.shown)
        return np.array([rightness(*pair) for pair in zip(logits, targets_of(data), strict=True)])

    def figures(
        self, data: ReferringSplit, each: Float[np.ndarray, " text"], right: Sequence[np.ndarray]
    ) -> dict[str, float]:
        dialogs = np.array(data.dialogs, dtype=bool)
        found = {"accuracy": 100 * float(each.mean())}
        if dialogs.any() and not dialogs.all():
            found["expressions"], found["dialogs"] = (100 * float(each[part].mean()) for part in (~dialogs, dialogs))
        found |= {f"accuracy_{kind}": value for kind, value in by_kind(100 * each, data.kinds).items() if kind}
        return found | {"chance": 100 * float(np.mean([own.mean() for own in right]))}

    def measure(self, model: Referrer, data: ReferringSplit, settings: Any, folder: Path, tables: bool) -> Arrays:
        """Texts about one picture are not independent: a picture's part is that of all its texts."""
        kept = read_split(data, settings)
        each = self.each(model, kept, settings)
        figures = {**self.figures(kept, each, targets_of(kept)), **self.counts(data, settings)}
        parts = np.zeros(len(kept.images))
        np.add.at(parts, kept.pictures.image_of_text, mean_parts(each))
        return {**{name: np.asarray(value) for name, value in figures.items()}, f"{PART}accuracy": parts}

    def counts(self, data: ReferringSplit, settings: Any) -> dict[str, int]:
        return {"pictures": len(data.images), "texts": len(read_texts(data, settings.reads).texts)}

    def compare(self, request: EvalRequest) -> Evaluation:
        """A row for every kind of text, a column for every model, beside a box drawn at random."""
        from saccade.tasks.referring.task import ReferringConfig

        options: EvalOptions = request.options
        splits = SplitForModels(request.data, request.split)
        found: dict[str, dict[str, float]] = {}
        data: ReferringSplit | None = None
        for folder in request.models:
            model = load_model(folder, Referrer).to(request.device)
            settings = request.settings.get(folder, ReferringConfig())
            data = read_split(splits.regions_for(model, folder), settings)
            chosen, right = data, targets_of(data)
            if options.proposed:
                chosen = proposed_split(model, data)
                right = right_proposals(data, chosen)
                bound = np.array([float(own.any()) for own in right])
                found.setdefault("upper bound", self.figures(data, bound, right))
            logits = choose_all(model, chosen, settings.eval_batch, settings.shown)
            chance = np.array([own.mean() for own in right])
            found.setdefault("at random", self.figures(data, chance, right))
            each = np.array([rightness(*pair) for pair in zip(logits, right, strict=True)])
            found[folder] = self.figures(data, each, right)
        assert data is not None
        rows = list(found.values())
        names = list(dict.fromkeys(name for own in rows for name in own if name != "chance"))
        among = "proposed boxes, right from IoU 0.5 on" if options.proposed else "the data set's boxes"
        return Evaluation(
            f"{data.pictures.name}/{data.pictures.split}: {len(data.images)} pictures, {len(data.texts)} texts; per "
            f"cent, among {among}",
            ("texts", *found),
            tuple(
                (name.replace("accuracy_", "… "), *(f"{own[name]:.1f}" if name in own else "" for own in rows))
                for name in names
            ),
            {"data": data.pictures.name, "split": data.pictures.split, "among": among, "results": found},
        )
