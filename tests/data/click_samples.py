"""Small behaviour logs, in every layout that is read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ITEMS: dict[str, Any] = {
    "item": ["a", "b", "c", "d"],
    "title": ["red mug", "blue mug", None, "big lamp"],
    "image": [[1.0, 2, 3], [4, 5, 6], None, [7, 8, 9]],
    "brand": ["x", "y", "x", None],
    "price": [1.5, None, 3.0, 4.0],
}
LOG: dict[str, Any] = {
    "user": ["u", "u", "v", "w", "w"],
    "item": ["a", "b", "c", "d", "a"],
    "clicked": [1, 0, 1, 0, 1],
    "time": [1000, 1001, 2000, 3000, 3001],
    "history": [["b"], ["b", "a"], [], ["c", "a", "b"], None],
    "history_kinds": [["view"], ["view", "buy"], [], ["view", "click", "buy"], None],
    "history_times": [[900], [900, 1000], [], [10, 20, 2990], None],
}


def parquet_log(folder: Path, rows: int = 2) -> Path:
    """Row groups of `rows` rows; the same rows in every split."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(ITEMS), folder / "items.parquet")
    for split in ("train", "dev", "test"):
        pq.write_table(pa.table(LOG), folder / f"{split}.parquet", row_group_size=rows)
    return folder


def inline_log(folder: Path) -> Path:
    """What items are stands in the log itself."""
    folder.mkdir(parents=True, exist_ok=True)
    place = [ITEMS["item"].index(item) for item in LOG["item"]]
    own = {name: [values[n] for n in place] for name, values in ITEMS.items() if name != "item"}
    for split in ("train", "dev"):
        pq.write_table(pa.table(LOG | own), folder / f"{split}.parquet", row_group_size=2)
    return folder


def csv_log(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)

    def cell(value: object) -> str:
        return "" if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value)

    def write(name: str, table: dict[str, list[Any]]) -> None:
        lines = [",".join(table), *(",".join(map(cell, row)) for row in zip(*table.values(), strict=True))]
        (folder / name).write_text("\n".join(lines) + "\n")

    write("items.csv", ITEMS)
    write("train.csv", LOG)
    write("dev.csv", LOG)
    return folder


def amazon_folder(folder: Path, literal: bool = False, features: bool = True) -> Path:
    """Three users, four items, one of which nothing but reviews is known."""
    folder.mkdir(parents=True, exist_ok=True)
    items = [f"B00000000{n}" for n in range(4)]
    reviews = [
        {
            "reviewerID": f"U{user}",
            "asin": items[(user + n) % 4],
            "overall": 1.0 + n % 5,
            "unixReviewTime": 100 * n + user,
        }
        for user in range(3)
        for n in range(4)
    ]
    meta = [
        {"asin": item, "title": f"thing {n}", "brand": "x", "price": f"${n}.50", "categories": [["Home", "Mugs"]]}
        for n, item in enumerate(items[:3])
    ]
    write = (lambda rows: "\n".join(map(repr, rows))) if literal else (lambda rows: "\n".join(map(json.dumps, rows)))
    with gzip.open(folder / "reviews_Home_5.json.gz", "wt") as file:
        file.write(write(reviews))
    with gzip.open(folder / "meta_Home.json.gz", "wt") as file:
        file.write(write(meta))
    if features:
        vectors = np.arange(2 * 4096, dtype="<f4").reshape(2, 4096)
        rows = [item.encode() + vector.tobytes() for item, vector in zip(items, vectors, strict=False)]
        (folder / "image_features_Home.b").write_bytes(b"".join(rows))
    return folder
