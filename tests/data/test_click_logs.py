"""Behaviour logs: every layout gives the same impressions; what is wrong is told in a sentence."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click_samples import ITEMS, LOG, amazon_folder, csv_log, inline_log, parquet_log

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.data.clicks import Clicks, ImpressionRows, key_of
from saccade.data.clicks.log import open_clicks_log
from saccade.data.datasets.amazon_reviews import open_amazon_reviews
from saccade.data.datasets.made.world_clicks import export_world_clicks, shop_clicks
from saccade.world.shoppers import ShopConfig


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))


def every(data: Clicks, longest: int = 2) -> ImpressionRows:
    return data.impressions.rows(np.arange(len(data)), longest)


@pytest.mark.parametrize("make", [parquet_log, inline_log, csv_log])
def test_every_layout_gives_the_same_impressions(make: Callable[[Path], Path], tmp_path: Path) -> None:
    data = open_records(DataConfig("clicks", make(tmp_path / "log")), "train", "clicks")
    items = data.catalogue
    assert items.fields == ("item", "brand")
    assert items.statistic_names == ("price",)
    assert [*items.titles] == ["red mug", "blue mug", "", "big lamp", ""]  # the last is an unknown item
    np.testing.assert_array_equal(items.statistics[:, 0], np.float32([1.5, np.nan, 3, 4, np.nan]))
    np.testing.assert_array_equal(items.image, [[1, 2, 3], [4, 5, 6], [0, 0, 0], [7, 8, 9], [0, 0, 0]])
    assert items.ids[0].tolist() == [key_of("a"), key_of("x")]
    assert items.ids[3, 1] == items.ids[4, 1] == 0

    rows = every(data)
    assert data.impressions.behaviours == ("buy", "click", "view")
    assert rows.item.tolist() == [0, 1, 2, 3, 0]
    assert rows.clicked.tolist() == [1, 0, 1, 0, 1]
    assert rows.user.tolist() == [key_of(user) for user in LOG["user"]]
    assert rows.mask.tolist() == [[True, False], [True, True], [False] * 2, [True, True], [False] * 2]
    assert rows.history[3].tolist() == [0, 1]  # the latest two of three
    assert rows.kinds[3].tolist() == [2, 1]
    assert rows.ages[3].tolist() == [2980, 10]
    assert np.isnan(rows.ages[2]).all()


def test_rows_come_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    data = open_clicks_log("train", parquet_log(tmp_path / "log"))
    assert [*data.impressions.blocks] == [2, 2, 1]
    data.impressions.hold(1)  # no block but the last is kept
    whole = every(data)
    some = data.impressions.rows(np.array([4, 0, 3, 0]), 2)
    assert some.user.tolist() == whole.user[[4, 0, 3, 0]].tolist()
    assert some.history.tolist() == whole.history[[4, 0, 3, 0]].tolist()


def test_a_split_may_be_a_folder_of_files(tmp_path: Path) -> None:
    root = parquet_log(tmp_path / "log")
    (root / "train").mkdir()
    for n in (0, 1):
        pq.write_table(pa.table(LOG).slice(2 * n, 2), root / "train" / f"part-{n}.parquet")
    (root / "train.parquet").unlink()
    assert every(open_clicks_log("train", root)).item.tolist() == [0, 1, 2, 3]
    assert len(open_clicks_log("train+dev", root)) == 9


def test_events_become_impressions_with_what_came_before(tmp_path: Path) -> None:
    """Users are split by their ids, and only what was clicked on is a behaviour."""
    tmp_path.joinpath("log").mkdir()
    users = [f"user {n}" for n in range(40)]
    rows = [(user, "abcd"[n], 100 * n, n % 2, ("view", "buy")[n == 3]) for n in range(4) for user in users]
    columns = dict(zip(("user", "item", "time", "clicked", "kind"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "log" / "events.parquet")
    pq.write_table(pa.table(ITEMS), tmp_path / "log" / "items.parquet")
    parts = {split: open_clicks_log(split, tmp_path / "log") for split in ("train", "dev", "test")}
    assert sum(len(part) for part in parts.values()) == 160
    assert len(parts["train"]) > 100
    found = {split: every(part, 3) for split, part in parts.items()}
    assert not set(found["train"].user.tolist()) & set(found["dev"].user.tolist() + found["test"].user.tolist())
    own = found["train"].user == found["train"].user[0]
    assert found["train"].item[own].tolist() == [0, 1, 2, 3]
    assert found["train"].mask[own].sum(axis=1).tolist() == [0, 0, 1, 1]
    assert found["train"].history[own][3, 0] == 1
    assert found["train"].ages[own][3, 0] == 200


@pytest.mark.parametrize("literal", [False, True])
def test_a_review_is_a_behaviour_and_the_last_are_held_back(literal: bool, tmp_path: Path) -> None:
    root = amazon_folder(tmp_path / "amazon", literal)
    parts = {split: open_amazon_reviews(split, root) for split in ("train", "dev", "test")}
    items = parts["train"].catalogue
    assert [*items.titles] == ["thing 0", "thing 1", "thing 2", "", ""]
    assert items.fields == ("item", "brand", "category")
    assert items.image is not None
    assert items.image[:, 1].tolist() == [1, 4097, 0, 0, 0]
    assert items.statistics[1, items.statistic_names.index("price")] == 1.5
    rows = {split: every(part, 5) for split, part in parts.items()}
    for found in rows.values():  # three users, one event each, beside an item drawn at random
        assert found.clicked.tolist() == [1] * 3 + [0] * 3
        assert found.user[:3].tolist() == found.user[3:].tolist()
    assert rows["train"].mask.sum(axis=1).tolist() == [1] * 6
    assert rows["test"].mask.sum(axis=1).tolist() == [3] * 6
    assert parts["test"].impressions.behaviours == ("1 star", "2 stars", "3 stars")


def test_pictures_of_reviewed_items_may_be_files(tmp_path: Path) -> None:
    root = amazon_folder(tmp_path / "amazon", features=False)
    (root / "images").mkdir()
    (root / "images" / "B000000001.jpg").write_bytes(b"")
    items = open_amazon_reviews("train", root).catalogue
    assert items.pictures is not None
    assert items.picture_rows is not None
    assert (items.pictures.ids, items.picture_rows.tolist()) == (("B000000001",), [1])


def test_the_world_written_as_a_log_is_read_back(tmp_path: Path) -> None:
    config = ShopConfig(items=12, users=20)
    export_world_clicks(config, tmp_path / "shop")
    for split in ("train", "test"):
        made, read = shop_clicks(config, split), open_clicks_log(split, tmp_path / "shop")
        assert [*read.catalogue.titles] == [*made.catalogue.titles]
        np.testing.assert_array_equal(read.catalogue.ids, made.catalogue.ids)
        np.testing.assert_allclose(read.catalogue.statistics, made.catalogue.statistics)
        names = np.array(["", *made.impressions.behaviours]), np.array(["", *read.impressions.behaviours])
        one, other = every(made, 7), every(read, 7)
        for field in ("item", "clicked", "history", "mask", "ages"):
            np.testing.assert_array_equal(vars(one)[field], vars(other)[field])
        assert (names[0][one.kinds] == names[1][other.kinds])[one.mask].all()


def changed(table: dict[str, Any], **columns: Any) -> dict[str, Any]:
    return {name: value for name, value in (table | columns).items() if value is not None}


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no item": (ITEMS, changed(LOG, item=None), 'train.parquet has no column "item" .item or item_id'),
    "no label": (ITEMS, changed(LOG, clicked=None), 'has no column "clicked"'),
    "no user": (ITEMS, changed(LOG, user=None), 'has no column "user"'),
    "unknown item": (ITEMS, changed(LOG, item=[*"abcdz"]), "names the item 'z', of which nothing is known"),
    "odd label": (ITEMS, changed(LOG, clicked=[0, 1, 2, 0, 1]), 'the column "clicked" must hold 0 and 1'),
    "history no list": (ITEMS, changed(LOG, history=[1.5] * 5), 'the column "history" must hold lists, not double'),
    "kinds of other length": (ITEMS, changed(LOG, history_kinds=[["view"]] * 5), "as many entries in every row"),
    "time no number": (ITEMS, changed(LOG, time=["noon"] * 5), 'the column "time" must hold numbers'),
    "image no picture": (changed(ITEMS, image=[True] * 4), LOG, "paths of pictures or lists of numbers, not bool"),
    "images of two lengths": (changed(ITEMS, image=[[1.0], [1.0, 2.0], None, None]), LOG, "some of 1 and 2"),
    "image not finite": (changed(ITEMS, image=[[float("nan")]] * 4), LOG, "missing or not finite"),
    "items without items": (changed(ITEMS, item=None), LOG, 'items.parquet has no column "item"'),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_log_is_told(case: str, tmp_path: Path) -> None:
    items, log, text = WRONG[case]
    root = parquet_log(tmp_path / "log")
    pq.write_table(pa.table(items), root / "items.parquet")
    pq.write_table(pa.table(log), root / "train.parquet")
    with pytest.raises(SaccadeError, match=text):
        every(open_clicks_log("train", root))


def test_folders_without_a_log_are_told(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match="data=clicks needs a folder"):
        open_clicks_log("train", None)
    with pytest.raises(SaccadeError, match="has no table of impressions or events"):
        open_clicks_log("train", tmp_path)
    with pytest.raises(SaccadeError, match='has no split "tran"; did you mean "train"'):
        open_clicks_log("tran", parquet_log(tmp_path / "log"))
    with pytest.raises(SaccadeError, match=r"has no reviews_\*"):
        open_amazon_reviews("train", tmp_path)
    (tmp_path / "reviews_X.json").write_text("{]\n")
    (tmp_path / "meta_X.json").write_text("")
    with pytest.raises(SaccadeError, match=r"reviews_X.json, line 1 is neither JSON nor a Python literal"):
        open_amazon_reviews("train", tmp_path)


def test_a_damaged_table_is_read_or_refused(tmp_path: Path) -> None:
    """Bytes changed here and there: impressions or a SaccadeError, never anything else."""
    root = parquet_log(tmp_path / "log")
    whole = (root / "train.parquet").read_bytes()
    draw = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        (root / "train.parquet").write_bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])
        with suppress(SaccadeError):
            every(open_clicks_log("train", root))
