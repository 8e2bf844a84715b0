"""Clicks as a user predicts them: trained, measured, predicted for tables that strangers bring, and drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import saccade as package
from saccade.data.datasets.made.world_clicks import export_world_clicks
from saccade.tasks.clicks.predict import ClickRanker
from saccade.world.shoppers import ShopConfig
from toy_runs import saccade_command

Run = Callable[..., tuple[int, str, str]]
SMALL = ("model.dim=8", "common_dim=8", "title_dim=8", "state_dim=8", "hidden_dim=8", "attention_dim=8", "history=5")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("ctr") / "run"
    words = ("data=world_clicks", "pictures=20", "steps=4", "batch_size=16", *SMALL)
    assert saccade_command("train", "marn", *words, "-o", folder) == 0
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same items as those that the run learned from, on disk."""
    folder: Path = tmp_path_factory.mktemp("shop") / "shop"
    export_world_clicks(ShopConfig(items=20, users=40), folder)
    return folder


def test_a_run_is_measured_between_a_constant_and_the_truth(saccade: Run, run: Path, tmp_path: Path) -> None:
    code, out, err = saccade("eval", run, "--json", tmp_path / "figures.json")
    assert code == 0, err
    assert "LogLoss" in out
    found = json.loads((tmp_path / "figures.json").read_text())
    rows = found["results"]
    assert list(rows) == ["constant", str(run), "truth"]
    assert rows["constant"]["auc"] == rows["constant"]["gauc"] == 50
    assert rows["truth"]["auc"] > 85
    assert rows["truth"]["logloss"] < rows["constant"]["logloss"]
    assert found["impressions"] == 4 * 48
    low, high = found["intervals"]["truth"]["auc"]
    assert low < rows["truth"]["auc"] < high


def test_candidates_are_predicted_and_explained(saccade: Run, run: Path, shop: Path, tmp_path: Path) -> None:
    """Items that the run learned from need no columns of their own."""
    out, drawn = tmp_path / "clicks.parquet", tmp_path / "why.png"
    code, said, err = saccade("ctr", run, shop / "test.parquet", "-o", out, "--picture", drawn, "--rows", 2)
    assert code == 0, err
    assert "192 candidates" in said
    table, given = pq.read_table(out), pq.read_table(shop / "test.parquet")
    assert table.select(given.schema.names).equals(given)
    chances = table["probability"].to_numpy()
    assert ((chances > 0) & (chances < 1)).all()
    shares = np.stack([table[f"share_{n}"] for n in ("ids", "image", "title", "statistics", "invariant")])
    np.testing.assert_allclose(shares.sum(axis=0), 1, atol=1e-5)
    effects = np.stack([table[f"effect_{n}"] for n in ("ids", "image", "title", "statistics")])
    names = np.array(["ids", "image", "title", "statistics"])
    assert (names[np.abs(effects).argmax(axis=0)] == table["mattered"].to_numpy(zero_copy_only=False)).all()
    with Image.open(drawn) as picture:
        assert picture.width > 1000
        assert np.asarray(picture).std() > 20


def test_new_items_say_what_they_are(saccade: Run, run: Path, shop: Path, tmp_path: Path) -> None:
    """In the same row or in a table of items; the history may be of items that the run knows."""
    row: dict[str, Any] = {"item": ["new"], "history": [["item-00003"]]}
    about = {
        "title": ["red wooden mug for office"],
        "image": [str(shop / "images" / "item-00001.png")],
        "brand": ["Velm"],
    }
    inline, plain, items = (tmp_path / f"{name}.parquet" for name in ("inline", "plain", "items"))
    pq.write_table(pa.table(row | about), inline)
    pq.write_table(pa.table(row), plain)
    pq.write_table(pa.table({"item": ["new"]} | about), items)
    found = []
    for words in ((inline,), (plain, "--items", items)):
        code, _, err = saccade("ctr", run, *words, "-o", tmp_path / "out.parquet")
        assert code == 0, err
        found.append(pq.read_table(tmp_path / "out.parquet")["probability"][0].as_py())
    assert found[0] == pytest.approx(found[1])


def test_the_library_does_the_same(saccade: Run, run: Path, shop: Path, tmp_path: Path) -> None:
    ranker = package.load(run)
    assert isinstance(ranker, ClickRanker)
    assert ranker.predict(shop / "test.parquet", tmp_path / "one.parquet", shop / "items.parquet") == 192
    assert saccade("ctr", run, shop / "test.parquet", "-o", tmp_path / "two.parquet")[0] == 0
    one, two = (pq.read_table(tmp_path / f"{n}.parquet")["probability"].to_numpy() for n in ("one", "two"))
    np.testing.assert_allclose(one, two, atol=1e-5)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no item": ({"title": ["mug"]}, 'has no column "item"'),
    "unknown item": ({"item": ["strange"]}, "names the item 'strange', of which nothing is known"),
    "no rows": ({"item": pa.array([], pa.string())}, "has no candidates"),
    "odd history": ({"item": ["item-00001"], "history": [3]}, 'the column "history" must hold lists'),
    "no such picture": ({"item": ["n"], "title": ["mug"], "image": ["nowhere.png"]}, "nowhere.png"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_candidates_is_told(saccade: Run, run: Path, case: str, tmp_path: Path) -> None:
    table, text = WRONG[case]
    path, out = tmp_path / "candidates.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table(table), path)
    code, _, err = saccade("ctr", run, path, "-o", out)
    assert code == 2
    assert text in err
    assert not out.exists()


def test_files_of_other_kinds_are_told(saccade: Run, run: Path, tmp_path: Path) -> None:
    (tmp_path / "c.parquet").write_bytes(b"PAR1 nothing PAR1")
    pq.write_table(pa.table({"item": ["item-00001"]}), tmp_path / "good.parquet")
    for words, text in (
        ((tmp_path / "c.parquet",), "cannot be read as a table"),
        ((tmp_path / "c.txt",), "a table is a .parquet or .csv file"),
        ((tmp_path / "absent.parquet",), "does not exist"),
        ((tmp_path / "good.parquet", "-o", tmp_path / "out.csv"), "predictions are written as .parquet"),
        ((tmp_path / "good.parquet", "--picture", tmp_path / "why.txt"), "is saved as one of"),
    ):
        code, _, err = saccade("ctr", run, *words)
        assert code == 2
        assert text in err


def test_the_world_is_written_as_a_log(saccade: Run, tmp_path: Path) -> None:
    code, out, err = saccade("world", "clicks", "items=3", "users=10", "redundancy=1", "-o", tmp_path / "shop")
    assert code == 0, err
    assert "3 items and 10 users" in out
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == [
        *("dev.parquet", "images", "items.parquet", "test.parquet", "train.parquet")
    ]
    assert saccade("world", "clicks", "redundancy=2", "-o", tmp_path / "no")[0] == 2
