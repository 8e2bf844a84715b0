"""Clicks: logs are shuffled by blocks and resumed anywhere; models learn what tells clicks from the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

from saccade.batch import ClickBatch
from saccade.core.errors import SaccadeError
from saccade.data import DataConfig
from saccade.data.clicks import Catalogue, Clicks, HeldImpressions, key_of
from saccade.metrics.clicks import click_intervals, grouped_auc
from saccade.models import Marn, MarnConfig, load_model
from saccade.tasks.clicks import batches
from saccade.tasks.clicks.batches import ItemTable, kind_places, whole_batch, with_all_items, with_own_items
from saccade.tasks.clicks.evaluate import ClickQuality, Predicted, predict_clicks
from saccade.tasks.clicks.order import BlockSampler
from saccade.tasks.clicks.task import ClicksConfig, ClicksTask, build_predictor, open_click_split, prepare_clicks
from saccade.training.run import run_config, train_run
from saccade.training.seeds import BatchSampler
from saccade.vision.augment import AugmentConfig

SMALL: dict[str, Any] = {
    "dim": 16, "common_dim": 16, "id_dim": 4, "word_dim": 8, "title_dim": 8, "attention_dim": 8, "state_dim": 16,
    "hidden_dim": 16, "buckets": 4, "reversal": 0.1, "unit_parts": True, "history": 3, "title_words": 3,
}  # fmt: skip
WORDS = ("red", "blue", "green", "pink")


def liked_words(users: int = 60, shown: int = 20) -> Clicks:
    """Users click on titles with the word of what they did last; pictures say the same, a brand says nothing."""
    draw = np.random.default_rng(0)
    items = 40
    word = np.arange(items) % 4
    image = np.eye(4, dtype=np.float32)[word] + 0.1 * draw.standard_normal((items, 4)).astype(np.float32)
    keys = [(key_of(f"item {n}"), key_of(f"brand {n % 3}")) for n in range(items)]
    catalogue = Catalogue(
        "toys",
        np.array([*keys, (0, 0)], dtype=np.int64),
        ("item", "brand"),
        (*(f"{WORDS[n]} mug" for n in word), ""),
        np.concatenate([draw.random((items, 1)), [[np.nan]]]).astype(np.float32),
        ("price",),
        np.concatenate([image, np.zeros((1, 4), np.float32)]),
    )
    count = users * shown
    item, last = draw.integers(0, items, count), draw.integers(0, items, count)
    return Clicks(
        "toys",
        "train",
        catalogue,
        HeldImpressions(
            ("click",), np.repeat(np.arange(users), shown), item, (word[item] == word[last]).astype(np.float32),
            np.full(count, 100.0), np.arange(count), np.arange(count) + 1,
            last, np.ones(count, np.int64), np.zeros(count),
        ),
    )  # fmt: skip


def fresh(data: Clicks, config: ClicksConfig, **switches: Any) -> Marn:
    torch.manual_seed(0)
    model = build_predictor(Marn, MarnConfig(**{**SMALL, **switches}), prepare_clicks(data, config))
    assert isinstance(model, Marn)
    return model


CONFIG = ClicksConfig(eval_batch=256)
CONCATENATION = {"fusion": "concat", "invariant": "none", "discriminators": 0, "specific": False}


@pytest.mark.parametrize("switches", [{}, {**CONCATENATION, "sequence": "din"}])
def test_a_model_learns_what_a_user_clicks_on(switches: dict[str, Any]) -> None:
    data = liked_words()
    model = fresh(data, CONFIG, **switches)
    task = ClicksTask(model, replace(data, device="cpu"), data, CONFIG, AugmentConfig())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    draw = np.random.default_rng(0)
    before = task.evaluate(model)
    for step in range(150):
        batch = task.before_loss(model, task.batch(draw.integers(0, len(data), 64).tolist()), step)
        loss, figures = task.loss(model, batch, step)
        assert set(figures) == ({"loss_click"} if switches else {"loss_click", "loss_d0", "loss_d1", "loss_ds"})
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    after = task.evaluate(model)
    assert before["auc"] < 65
    assert after["auc"] > 90
    assert after["gauc"] > 90
    assert after["logloss"] < before["logloss"] / 1.5


def test_all_items_or_those_of_the_batch_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for losses nor for predictions; nor whether impressions are kept on a device."""
    data = liked_words(10)
    model = fresh(data, CONFIG).double().eval()
    table = ItemTable(model, data.catalogue)
    batch = whole_batch(data.impressions.rows(np.arange(30), 3), kind_places(model, data.impressions))
    one, other = with_all_items(batch, table), with_own_items(batch, table.take)
    assert len(other.rows) % batches.ITEMS_STEP == 0
    assert one.counts.sum() == other.counts.sum() == 60
    for name, loss in model.losses(one).items():
        torch.testing.assert_close(loss, model.losses(other)[name])
    held = ClicksTask(model, replace(data, device="cpu"), data, CONFIG, AugmentConfig())
    plain = ClicksTask(model, data, data, CONFIG, AugmentConfig())
    numbers = [5, 2, 9]
    for task in (held, plain):
        found = task.before_loss(model, task.batch(numbers), 0)
        assert isinstance(found, ClickBatch)
        torch.testing.assert_close(model(found), model(one)[numbers])
    whole = predict_clicks(model, data, CONFIG)
    monkeypatch.setattr("saccade.tasks.clicks.evaluate.ALL_ITEMS", 0)
    np.testing.assert_allclose(predict_clicks(model, data, CONFIG).probability, whole.probability)


@dataclass
class Plain:
    batch_size: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    steps_per_epoch: int = 0


def test_a_log_is_read_once_an_epoch_some_blocks_at_a_time() -> None:
    blocks = [7, 3, 12, 5, 9, 4]
    plain = BatchSampler(40, 8, 0)
    sampler = BlockSampler(plain, blocks, 10)
    ends = np.cumsum(blocks)
    for epoch in (0, 1):
        steps = [sampler.indices(epoch * 5 + n) for n in range(5)]
        assert sorted(row for step in steps for row in step) == list(range(40))
        for step in steps:  # of two windows at most: blocks until ten rows are reached
            assert len({int(np.searchsorted(ends, row, side="right")) for row in step}) <= 6
    first = [sampler.indices(n) for n in range(5)]
    assert first != [sampler.indices(5 + n) for n in range(5)]  # another order
    assert sampler.indices(0) != sorted(sampler.indices(0))
    assert BlockSampler(plain, blocks, 10).indices(7) == sampler.indices(7)  # from the step's number alone
    shares = [BlockSampler(BatchSampler(40, 8, 0, True, rank, 2), blocks, 10).indices(3) for rank in (0, 1)]
    assert shares[0] + shares[1] == sampler.indices(3)


def test_few_blocks_are_needed_at_a_time() -> None:
    blocks = [100] * 50
    sampler = BlockSampler(BatchSampler(5000, 50, 3), blocks, 300)
    seen = [{row // 100 for row in sampler.indices(step)} for step in range(100)]
    assert max(len(own) for own in seen) <= 6
    assert len(set.union(*seen[:6])) == 3  # a window of three hundred rows
    assert len(set.union(*seen)) == 50


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log on disk: ninety blocks of ten impressions, of which a window holds three."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    data = liked_words(45)
    rows = data.impressions.rows(np.arange(len(data)), 1)
    names = np.array([f"item {n}" for n in range(40)])
    table = {
        "user": rows.user, "item": names[rows.item], "clicked": rows.clicked.astype(np.int8),
        "title": [data.catalogue.titles[n] for n in rows.item], "image": [data.catalogue.image[n] for n in rows.item],  # type: ignore[index]
        "history": [[names[n]] for n in rows.history[:, 0]],
    }  # fmt: skip
    (tmp_path / "log").mkdir()
    for split in ("train", "dev"):
        pq.write_table(pa.table(table), tmp_path / "log" / f"{split}.parquet", row_group_size=10)
    return tmp_path / "log"


def test_a_streamed_run_that_is_taken_up_again_ends_the_same(log: Path, tmp_path: Path) -> None:
    small = [f"model.{name}={str(value).lower()}" for name, value in SMALL.items()]
    words = ["data=clicks", f"root={log}", "batch_size=20", "shuffle=30", "accelerator=cpu", *small]

    def run(name: str, steps: int, resume: bool = False) -> dict[str, torch.Tensor]:
        config = run_config("marn", [*words, f"steps={steps}", "checkpoint_every=5"])
        train_run(config, tmp_path / name, resume, Console(quiet=True))
        return load_model(tmp_path / name / "last").state_dict()

    whole = run("whole", 12)
    run("parts", 5)
    for name, weight in run("parts", 12, resume=True).items():
        assert torch.equal(weight, whole[name]), name


def test_no_more_rows_are_held_than_asked_for(log: Path) -> None:
    data = open_click_split(DataConfig("clicks", log), "train")
    task = ClicksTask(fresh(data, CONFIG), data, data, replace(CONFIG, shuffle=30), AugmentConfig())
    sampler = task.sampler(lambda count, size: BatchSampler(count, 20, 0))
    held: Any = data.impressions
    for step in range(45):
        task.batch(sampler.indices(step))
        assert sum(len(part) for part in held._held.values()) <= 90


def test_gauc_and_intervals_agree_with_what_they_are_of() -> None:
    draw = np.random.default_rng(1)
    users, clicked = draw.integers(0, 30, 600), draw.integers(0, 2, 600)
    chance = 0.5 * draw.random(600) + 0.3 * clicked
    found = Predicted(users, clicked.astype(np.float32), chance)
    figures, intervals = found.figures(), found.intervals()
    for name, value in figures.items():
        assert intervals[name][0] < value < intervals[name][1]
    assert click_intervals(users, clicked, chance) == click_intervals(users, clicked, chance)
    slow = [
        (own.sum(), grouped_auc(users[own], clicked[own], chance[own])[0]) for own in (users == u for u in range(30))
    ]
    assert figures["gauc"] == pytest.approx(100 * sum(n * area for n, area in slow) / 600)
    with pytest.raises(SaccadeError, match="all are of one kind"):
        Predicted(users, np.ones(600, np.float32), chance)


def test_the_parts_of_users_add_up(tmp_path: Path) -> None:
    data = liked_words(12)
    model = fresh(data, CONFIG)
    kept = ClickQuality().measure(model, data, CONFIG, tmp_path, False)
    assert kept["part/gauc"].sum() == pytest.approx(float(kept["gauc"]))
    assert kept["part/logloss"].sum() == pytest.approx(float(kept["logloss"]))
    assert (int(kept["pictures"]), int(kept["texts"])) == (12, 240)


def test_modalities_that_items_do_not_have_are_left_out() -> None:
    data = liked_words(5)
    plain = replace(
        data,
        catalogue=replace(data.catalogue, image=None, statistics=np.zeros((41, 0), np.float32), statistic_names=()),
    )
    assert fresh(plain, CONFIG).config.modalities == ("ids", "title")
    assert fresh(data, CONFIG).config.id_counts == (40, 3)


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(SaccadeError, match="no backbone"):
        open_click_split(DataConfig("world_clicks", pictures=20), "train", 64)
    with pytest.raises(SaccadeError, match="held_out is for pictures"):
        open_click_split(DataConfig("world_clicks", pictures=20, held_out=10), "train")
    data = liked_words(5)
    other = replace(data, catalogue=replace(data.catalogue, image=np.zeros((41, 7), np.float32)))
    with pytest.raises(SaccadeError, match="reads image features of 4 numbers, toys has 7"):
        predict_clicks(fresh(data, CONFIG), other, CONFIG)
