"""Impressions as batches: a catalogue as a model reads it, and the items of a batch, each once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from saccade.batch import PAD, ClickBatch, ItemBatch
from saccade.core.errors import SaccadeError
from saccade.data.clicks import Catalogue, ImpressionRows, Impressions
from saccade.language.tokenise import tokenise
from saccade.models import ClickPredictor

ALL_ITEMS = 1 << 13  # catalogues of no more items go into every batch whole: nothing has to be looked up
ITEMS_STEP = 512  # the items of other batches are padded to a multiple of it, so that shapes come back
TITLES_AT_ONCE = 4096


class ItemTable:
    """A catalogue by the fields, words and statistics that a model knows, on a device; mapped images stay on disk."""

    def __init__(self, model: ClickPredictor, catalogue: Catalogue, device: str | torch.device = "cpu") -> None:
        config = model.config
        check_images(model, catalogue)
        self.device = torch.device(device)
        ids = np.zeros((len(catalogue), len(config.id_fields)), np.int64)
        statistics = np.full((len(catalogue), len(config.statistics)), np.nan, np.float32)
        for own, names, given, values in (
            (ids, config.id_fields, catalogue.fields, catalogue.ids),
            (statistics, config.statistics, catalogue.statistic_names, catalogue.statistics),
        ):
            for place, name in enumerate(names):
                if name in given:
                    own[:, place] = values[:, given.index(name)]
        self.ids, self.statistics = (torch.from_numpy(each).to(self.device) for each in (ids, statistics))
        self.tokens = title_tokens(model, catalogue).to(self.device)
        image = catalogue.image
        if image is None or "image" not in config.modalities:
            image = np.zeros((len(catalogue), 1), np.float32)
        self.image: np.ndarray | Tensor = image
        if self.device.type != "cpu" or not isinstance(image, np.memmap):
            self.image = torch.from_numpy(np.ascontiguousarray(image)).to(self.device)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Int[Tensor, " item"]) -> ItemBatch:
        if isinstance(self.image, Tensor):
            image = self.image[rows]
        else:
            image = torch.from_numpy(np.ascontiguousarray(self.image[rows.numpy()], dtype=np.float32))
        return ItemBatch(self.ids[rows], image, self.tokens[rows].long(), self.statistics[rows])


def check_images(model: ClickPredictor, catalogue: Catalogue) -> None:
    """Raises: SaccadeError if a model cannot read a catalogue's image features."""
    if catalogue.image is None or "image" not in model.config.modalities:
        return
    if catalogue.image.shape[1] != model.config.image_dim:
        raise SaccadeError(
            f"the model reads image features of {model.config.image_dim} numbers, {catalogue.name} has "
            f"{catalogue.image.shape[1]}"
        )
    if model.extractor and catalogue.extractor and model.extractor != catalogue.extractor:
        raise SaccadeError(
            f"the model learned from pictures as {model.extractor} sees them, {catalogue.name} as {catalogue.extractor}"
        )


def title_tokens(model: ClickPredictor, catalogue: Catalogue) -> Int[Tensor, "item word"]:
    """The first words of each title, small whole numbers; <pad> behind."""
    longest = model.config.title_words
    tokens = np.full((len(catalogue), longest), PAD, np.int32)
    for start in range(0, len(catalogue), TITLES_AT_ONCE):
        for row, title in enumerate(catalogue.titles[start : start + TITLES_AT_ONCE], start=start):
            words = [model.vocabulary.id_of(word) for word in tokenise(title)[:longest]]
            tokens[row, : len(words)] = words
    return torch.from_numpy(tokens)


def kind_places(model: ClickPredictor, impressions: Impressions) -> Int[np.ndarray, " kind"]:
    """From the kinds of behaviour of a split to those that a model knows; 0: none."""
    known = {name: n for n, name in enumerate(model.config.behaviours, start=1)}
    return np.array([0, *(known.get(name, 0) for name in impressions.behaviours)], dtype=np.int64)


def whole_batch(rows: ImpressionRows, kinds: Int[np.ndarray, " kind"]) -> ClickBatch:
    """Impressions that point into the catalogue itself, which is not here yet."""
    return ClickBatch(
        torch.from_numpy(rows.item),
        torch.from_numpy(rows.history),
        torch.from_numpy(rows.mask),
        torch.from_numpy(kinds[rows.kinds]),
        torch.from_numpy(rows.ages),
        torch.from_numpy(rows.clicked),
        torch.zeros(0, dtype=torch.long),
        torch.zeros(0),
    )


def with_all_items(batch: ClickBatch, table: ItemTable) -> ClickBatch:
    """All items of a small catalogue; how often each occurs is counted on the device."""
    every = torch.arange(len(table), device=table.device)
    counts = torch.zeros(len(table), device=table.device)
    counts.scatter_add_(0, batch.candidate, torch.ones_like(batch.candidate, dtype=counts.dtype))
    counts.scatter_add_(0, batch.history.flatten(), batch.mask.flatten().to(counts.dtype))
    return replace(batch, rows=every, counts=counts, items=table.take(every))


def with_own_items(batch: ClickBatch, take: Callable[[Tensor], ItemBatch] | None) -> ClickBatch:
    """The items that occur, each once, padded to a round number with items that count 0 times."""
    history = np.where(batch.mask.numpy(), batch.history.numpy(), batch.candidate.numpy()[:, None])
    every = np.concatenate([batch.candidate.numpy(), history.ravel()])
    real = np.concatenate([np.ones(len(batch.candidate), bool), batch.mask.numpy().ravel()])
    rows, inverse = np.unique(every, return_inverse=True)
    counts = np.bincount(inverse, real, minlength=len(rows))
    more = -len(rows) % ITEMS_STEP
    padded = torch.from_numpy(np.concatenate([rows, np.full(more, rows[0])]))
    place = torch.from_numpy(inverse.reshape(-1))
    split = len(batch.candidate)
    return replace(
        batch,
        candidate=place[:split],
        history=place[split:].view(batch.history.shape),
        rows=padded,
        counts=torch.from_numpy(np.concatenate([counts, np.zeros(more)])).float(),
        items=take(padded) if take is not None else None,
    )
