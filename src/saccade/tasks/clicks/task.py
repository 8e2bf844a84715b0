"""Clicks: learn from impressions, all in memory or streamed from a log.

What is in memory is kept on the training device, and a batch is the numbers of its impressions. Of a streamed log a
few blocks are in memory at a time: blocks come in another order in every epoch, and the impressions of some of them are
shuffled together. Which impressions a step learns from follows from the seed and the step's number, so that a run can
be resumed anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from saccade.batch import Batch, ClickBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.clicks import Catalogue, Clicks
from saccade.features import open_clicks
from saccade.language.tokenise import tokenise
from saccade.models import ClickPredictor
from saccade.tasks.base import Loss, Sampler, TaskSpec
from saccade.tasks.clicks import EvalOptions
from saccade.tasks.clicks.batches import (
    ALL_ITEMS,
    ItemTable,
    kind_places,
    whole_batch,
    with_all_items,
    with_own_items,
)
from saccade.tasks.clicks.evaluate import MAIN, ClickQuality
from saccade.tasks.clicks.order import BlockSampler
from saccade.tasks.clicks.predict import ClickRanker
from saccade.tasks.prepare import Prepared, build_model, prepare_words
from saccade.vision.augment import AugmentConfig

SAMPLED = 100_000  # items by which buckets of statistics, image statistics and words are told


@dataclass(frozen=True)
class ClicksConfig:
    """What is known of the items, and how a log is shuffled."""

    min_count: int = 1  # rarer words of the titles are unknown words
    max_ids: int = 1_000_000  # values of an id field that have a vector of their own
    shuffle: int = 65_536  # impressions of a streamed log that are shuffled together
    vectors: str | None = None  # what words start from: glove-6b-50d, or a GloVe or fastText file; none: at random
    eval_batch: int = 1024  # impressions predicted at once
    eval_limit: int | None = None  # of a split, so many impressions are measured; none: all

    def __post_init__(self) -> None:
        check_ranges(self, "min_count max_ids shuffle eval_batch eval_limit", "at least 1")


@dataclass(frozen=True)
class PreparedClicks(Prepared):
    """With the items that a fresh model takes in, and of each field the keys that it knows."""

    items: Catalogue | None = None
    known: tuple[Int[np.ndarray, " value"], ...] = ()
    behaviours: tuple[str, ...] = ()


def prepare_clicks(train: Clicks, settings: ClicksConfig) -> PreparedClicks:
    """The words of the titles, the known ids, how statistics are cut, the kinds of behaviour."""
    items, behaviours = train.catalogue, train.impressions.behaviours
    titles = islice((title for title in items.titles if tokenise(title)), SAMPLED)
    words = prepare_words([*titles] or ["untitled"], settings.min_count, settings.vectors)
    known = tuple(known_ids(items, field, settings.max_ids) for field in range(len(items.fields)))
    ids = ", ".join(f"{name} ({len(keys):,})" for name, keys in zip(items.fields, known, strict=True))
    return PreparedClicks(
        words.vocabulary,
        words.vectors,
        widths={"image_dim": 1 if items.image is None else items.image.shape[1]},
        extractor=items.extractor,
        notes=(
            *words.notes,
            f"{len(items) - 1:,} items, {len(train):,} impressions; ids: {ids}; statistics: "
            f"{', '.join(items.statistic_names) or 'none'}; behaviours: {', '.join(behaviours)}",
        ),
        facts={**words.facts, "items": len(items) - 1, "impressions": len(train)},
        items=items,
        known=known,
        behaviours=behaviours,
    )


def known_ids(items: Catalogue, field: int, most: int) -> Int[np.ndarray, " value"]:
    """The keys of a field, in order; of too many, those of the most items."""
    keys, counts = np.unique(items.ids[:, field], return_counts=True)
    keys, counts = keys[keys != 0], counts[keys != 0]
    if len(keys) > most:
        keys = np.sort(keys[np.argsort(-counts, kind="stable")[:most]])
    return keys


def take_in(model: ClickPredictor, items: Catalogue, known: Sequence[Int[np.ndarray, " value"]]) -> None:
    """Give a fresh model the keys of ids, the edges of statistics and the spread of image features."""
    buckets = model.config.buckets
    sample = np.linspace(0, len(items) - 2, min(len(items) - 1, SAMPLED)).astype(np.int64)
    edges = [bucket_edges(items.statistics[sample, n], buckets) for n in range(len(model.config.statistics))]
    mean, spread = torch.zeros(model.config.image_dim), torch.ones(model.config.image_dim)
    if items.image is not None and len(sample):
        few = sample[:: max(len(sample) // 4096, 1)]
        image = torch.from_numpy(np.asarray(items.image[few], dtype=np.float32))
        real = image[(image != 0).any(dim=1)]
        if len(real) > 1:
            mean, spread = real.mean(dim=0), real.std(dim=0).clamp(min=1e-6)
    table = torch.from_numpy(np.array(edges, dtype=np.float32).reshape(len(edges), buckets - 1))
    model.embed.learn({n: torch.from_numpy(keys) for n, keys in enumerate(known)}, table, mean, spread)


def bucket_edges(values: np.ndarray, buckets: int) -> np.ndarray:
    """Between equally full buckets of what is known."""
    real = values[np.isfinite(values)]
    return np.quantile(real, np.arange(1, buckets) / buckets) if len(real) else np.zeros(buckets - 1)


def build_predictor(kind: type[ClickPredictor], config: Any, prepared: Prepared) -> ClickPredictor:
    """A fresh model that knows the ids, statistics and behaviours of the training split; modalities that the items do
    not have are left out."""
    assert isinstance(prepared, PreparedClicks)
    assert prepared.items is not None
    items = prepared.items
    absent = {"image"} if items.image is None else set()
    absent |= set() if items.statistic_names else {"statistics"}
    given = {
        "id_fields": items.fields,
        "id_counts": tuple(len(keys) for keys in prepared.known),
        "statistics": items.statistic_names,
        "behaviours": prepared.behaviours,
        "modalities": tuple(modality for modality in config.modalities if modality not in absent),
    }
    model = build_model(kind, replace(config, **given), prepared)
    take_in(model, items, prepared.known)
    return model


@dataclass(frozen=True)
class ChosenImpressions(Batch):
    """Numbers of impressions that are on the device."""

    numbers: Int[Tensor, " impression"]


class ClicksTask:
    """Every impression of the training split."""

    selection = MAIN

    def __init__(
        self, model: ClickPredictor, train: Clicks, dev: Clicks, config: ClicksConfig, augmentation: AugmentConfig
    ) -> None:
        self.train, self.dev, self.config = train, dev, config
        self.history = model.config.history
        self.table = ItemTable(model, train.catalogue, train.device or "cpu")
        self.kinds = kind_places(model, train.impressions)
        self.small = len(train.catalogue) <= ALL_ITEMS
        self.held: ClickBatch | None = None
        if train.device is not None and self.small and not train.impressions.streamed:
            every = train.impressions.rows(np.arange(len(train)), self.history)
            self.held = whole_batch(every, self.kinds).to(train.device)

    def __len__(self) -> int:
        return len(self.train)

    def sampler(self, make: Callable[[int, int | None], Any]) -> Sampler:
        found = make(len(self), None)
        if not self.train.impressions.streamed:
            return found  # type: ignore[no-any-return]
        self.train.impressions.hold(3 * self.config.shuffle)
        return BlockSampler(found, self.train.impressions.blocks, self.config.shuffle)

    def batch(self, indices: Sequence[int]) -> ChosenImpressions | ClickBatch:
        numbers = np.asarray(indices, dtype=np.int64)
        if self.held is not None:
            return ChosenImpressions(torch.from_numpy(numbers))
        batch = whole_batch(self.train.impressions.rows(numbers, self.history), self.kinds)
        if self.table.device.type != "cpu":
            return with_own_items(batch, None)  # which are on the device
        return with_all_items(batch, self.table) if self.small else with_own_items(batch, self.table.take)

    def before_loss(self, model: ClickPredictor, batch: ChosenImpressions | ClickBatch, step: int) -> ClickBatch:
        if isinstance(batch, ClickBatch):
            return batch if batch.items is not None else replace(batch, items=self.table.take(batch.rows))
        held = self.held
        assert held is not None
        parts = ("candidate", "history", "mask", "kinds", "ages", "clicked")
        numbers = batch.numbers.to(held.candidate.device)
        chosen = replace(held, **{name: getattr(held, name)[numbers] for name in parts})
        return with_all_items(chosen, self.table)

    def graph_batch(self, model: ClickPredictor, batch: ClickBatch, step: int) -> ClickBatch:
        return batch

    def loss(self, model: ClickPredictor, batch: ClickBatch, step: int) -> Loss:
        losses = model.losses(batch)
        figures = {f"loss_{name}": part.detach() for name, part in losses.items()}
        return torch.stack([*losses.values()]).sum(), figures

    def evaluate(self, model: ClickPredictor) -> dict[str, float]:
        return ClickQuality().evaluate(model, self.dev, self.config)


def open_click_split(config: DataConfig, split: str, pixels: int | None = None, device: str = "cpu") -> Clicks:
    """Raises: SaccadeError if a model with a backbone of its own asks, or there is nothing in the split."""
    if pixels is not None:
        raise SaccadeError("clicks are predicted from features of a fixed extractor: give data.extractor, no backbone")
    if config.held_out:
        raise SaccadeError("data.held_out is for pictures: clicks are judged by the users of dev_split")
    found = open_clicks(config, split, device)
    if not len(found):
        raise SaccadeError(f"{found.name}/{split} has no impressions")
    return found


SPEC: TaskSpec[ClickPredictor, Clicks] = TaskSpec(
    name="clicks",
    noun="click predictor",
    does="predicts which items a user clicks on",
    protocol=ClickPredictor,
    config=ClicksConfig,
    open=open_click_split,
    prepare=prepare_clicks,
    task=ClicksTask,
    evaluator=ClickQuality(),
    predictor=ClickRanker,
    verbs=("ctr",),
    options=EvalOptions,
    next_steps=("saccade eval {run}", "saccade ctr {run} CANDIDATES.parquet -o clicks.parquet"),
    build=build_predictor,
)
