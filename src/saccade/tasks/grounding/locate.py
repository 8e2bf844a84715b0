"""Where phrases are, by any model that can say: a grounder by its logits, a matcher by where its words attend.

What a model gives every region becomes boxes in one of two ways. The regions of a detector are proposals: the best is
the answer. The cells of a grid are a heat map: of all rectangles of cells the best is the answer
(`saccade.metrics.heat_maps`), or of the boxes of another extractor that with the most heat for its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import START, RegionBatch, Spans, TextBatch, phrase_words
from saccade.core.errors import SaccadeError
from saccade.explain.explanation import is_content
from saccade.metrics.heat_maps import (
    AREA_POWER,
    LEARNED_POWER,
    HeatBoxes,
    box_scores,
    covered,
    grid_shape,
    peak_boxes,
    ranked_windows,
    windows,
)
from saccade.metrics.pointing import pointed_at
from saccade.models import Grounder, Matcher, Model, load_model


def grounds(model: Model) -> bool:
    """Whether a model has learned from boxes what phrases mean."""
    return isinstance(model, Grounder) and model.grounds


def area_power(model: Model) -> float:
    return LEARNED_POWER if grounds(model) else AREA_POWER


def load_grounder(folder: str, device: str = "cpu") -> Matcher | Grounder:
    """Raises: SaccadeError if it is neither a matcher nor a grounder."""
    model: Model = load_model(folder)
    if not isinstance(model, Matcher | Grounder):
        raise SaccadeError(f"{folder} holds a model of {model.name}, which cannot say where phrases are")
    return model.to(device).eval()


@dataclass(frozen=True, eq=False)
class Located:
    """A phrase in a picture."""

    heat: Float[np.ndarray, " region"]
    boxes: Float[np.ndarray, "ranked 4"]  # best first
    point: Float[np.ndarray, " 2"]  # the middle of the region with the most heat
    every: Float[np.ndarray, "candidate 4"]  # what was chosen from
    regions: Float[np.ndarray, "region 4"]

    @property
    def box(self) -> Float[np.ndarray, " 4"]:
        return np.asarray(self.boxes[0])


def read_phrases(
    model: Matcher | Grounder, texts: Sequence[str], spans: Spans
) -> tuple[TextBatch, Float[Tensor, "text phrase word"]]:
    """Sentences as the model takes them, and their phrases among its tokens.

    Where a matcher looks word by word, words that show nothing by themselves ("the") are left out.
    """
    batch = model.read(texts)
    shift = int(len(batch) > 0 and bool(batch.tokens.shape[1]) and int(batch.tokens[0, 0]) == START)
    moved = [[(first + shift, end + shift) for first, end in own] for own in spans]
    batch = replace(batch, phrases=tuple(map(tuple, moved)))
    table = phrase_words(moved, batch.tokens.shape[1])
    if grounds(model) or (isinstance(model, Matcher) and model.whole_phrases):
        return batch, table
    telling = torch.zeros(batch.tokens.shape)
    for row, words in zip(telling, batch.words, strict=True):
        row[: len(words)] = torch.tensor([float(is_content(word)) for word in words])
    told = table * telling[:, None]
    return batch, torch.where(told.any(dim=2, keepdim=True), told, table)


def phrase_heat(
    model: Matcher | Grounder, images: RegionBatch, texts: TextBatch, phrases: Float[Tensor, "pair phrase word"]
) -> tuple[Float[Tensor, "pair phrase region"], Float[Tensor, "pair region 4"], Bool[Tensor, "pair region"]]:
    """How much every region of picture p is meant by each phrase of text p (of a grounder, how likely); these regions'
    boxes, and which are real: a matcher may have others than it was given."""
    if grounds(model):
        assert isinstance(model, Grounder)
        return model.ground(images, texts, phrases).sigmoid(), images.boxes, images.mask
    assert isinstance(model, Matcher)
    codes = model.encode_images(images)
    heat = model.heat(codes, model.encode_texts(texts), phrases)
    return heat, *((images.boxes, images.mask) if codes.boxes is None else (codes.boxes, model.shown(codes)))


def locate(
    heat: Float[np.ndarray, "phrase region"],
    regions: Float[np.ndarray, "region 4"],
    how: HeatBoxes = "windows",
    proposals: Float[np.ndarray, "proposal 4"] | None = None,
    power: float = AREA_POWER,
) -> list[Located]:
    """The boxes of phrases by their heat on the regions of a picture; `proposals` are those of another extractor, and
    `power` says how much the size of a box counts (`area_power`).

    Raises: SaccadeError if proposals are given, and the regions are no cells of a grid.
    """
    heat = heat - np.minimum(heat.min(axis=1, keepdims=True), 0)
    corner, sides = _frame(regions)
    shape = grid_shape((regions - corner) / sides)
    if shape is None:
        if proposals is not None:
            raise SaccadeError("boxes of another extractor are chosen by a heat map, and these regions are boxes")
        ranked, every = [regions[np.argsort(-row, kind="stable")] for row in heat], regions
    elif proposals is not None:
        scores, every = box_scores(heat, covered(proposals, regions), power), proposals
        ranked = [proposals[np.argsort(-row, kind="stable")] for row in scores]
    else:
        every = windows(*shape) * sides + corner
        found = ranked_windows(heat, *shape, power) if how == "windows" else [peak_boxes(row, *shape) for row in heat]
        ranked = [own * sides + corner for own in found]
    points = pointed_at(heat, regions)
    return [Located(*one, every, regions) for one in zip(heat, ranked, points, strict=True)]


def _frame(regions: Float[np.ndarray, "region 4"]) -> tuple[Float[np.ndarray, " 4"], Float[np.ndarray, " 4"]]:
    """The corner and the sides of what regions cover, twice each: some models see the middle of a picture alone."""
    low, high = regions[:, :2].min(axis=0), regions[:, 2:].max(axis=0)
    if (low.max() < 1e-3 and high.min() > 1 - 1e-3) or (high <= low).any():
        low, high = np.zeros(2), np.ones(2)
    return np.tile(low, 2), np.tile(high - low, 2)
