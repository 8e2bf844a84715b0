# mypy: disable-error-code="attr-defined,no-untyped-call"
"""The built-in world's shoppers as a data set: `data=world_clicks`, with `redundancy` from 0 to 1 (`world.shoppers`).

`pictures` is the number of items; there are twice as many users. Splits are of users: train, dev, test.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import pyarrow.parquet as pq
from PIL import Image

from saccade.core.files import atomic_folder
from saccade.core.progress import progress_bar
from saccade.data.clicks import Catalogue, Clicks, HeldImpressions, key_of
from saccade.data.records import CaptionedDrawings
from saccade.world.shoppers import (
    BEHAVIOURS,
    SHOWN,
    SPLITS,
    WARM_UP,
    ShopConfig,
    go_shopping,
    item_statistics,
    make_shop,
)

USERS_AN_ITEM = 2


def open_world_clicks(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000, redundancy: float = 0.5
) -> Clicks:
    """Nothing is kept at a `root`."""
    users = USERS_AN_ITEM * max(pictures, 10 // USERS_AN_ITEM)
    return shop_clicks(ShopConfig(items=pictures, users=users, redundancy=redundancy, seed=seed), split)


def shop_clicks(config: ShopConfig, split: str) -> Clicks:
    shopping = go_shopping(config)
    users = shopping.users(split)
    item, kind, time = shopping.item[users], shopping.kind[users], shopping.time[users]
    did = kind > 0
    before = np.cumsum(did, axis=1) - did  # behaviours of the user before each item shown
    offset = np.concatenate([[0], np.cumsum(did.sum(axis=1))[:-1]])[:, None]
    late = slice(WARM_UP * SHOWN, None)
    shape = item[:, late].shape
    impressions = HeldImpressions(
        BEHAVIOURS,
        np.broadcast_to(users[:, None], shape).ravel(),
        item[:, late].ravel(),
        shopping.clicked[users][:, late].ravel().astype(np.float32),
        time[:, late].ravel().astype(float),
        np.broadcast_to(offset, shape).ravel(),
        (offset + before)[:, late].ravel(),
        *(item[did], kind[did], time[did].astype(float)),
    )
    truth = shopping.probability[users][:, late].ravel()
    return Clicks("world_clicks", split, world_catalogue(config), impressions, truth)


def world_catalogue(config: ShopConfig) -> Catalogue:
    shop, numbers = make_shop(config), item_statistics(config)
    rows = len(shop)
    keys = [(key_of(shop.ids[n]), key_of(shop.value("brand", n)), key_of(f"shop-{shop.shop[n]}")) for n in range(rows)]
    drawings = CaptionedDrawings(
        name="world_clicks",
        split="items",
        ids=shop.ids,
        pictures=tuple(partial(shop.picture, n) for n in range(rows)),
        texts=(),
        image_of_text=np.zeros(0, dtype=np.int64),
        digest=config.picture_digest(),
    )
    unknown = np.full((1, len(numbers)), np.nan, dtype=np.float32)
    return Catalogue(
        "world_clicks",
        np.array([*keys, (0, 0, 0)], dtype=np.int64),
        ("item", "brand", "shop"),
        (*shop.titles, ""),
        np.concatenate([np.stack([*numbers.values()], axis=1).astype(np.float32), unknown]),
        tuple(numbers),
        pictures=drawings,
        picture_rows=np.arange(rows),
    )


def export_world_clicks(config: ShopConfig, folder: Path) -> None:
    """The same shop as a behaviour log on disk: items.parquet, images/, and a table of impressions for each split."""
    shop, numbers = make_shop(config), item_statistics(config)
    ids = np.array(shop.ids)
    with atomic_folder(folder) as temporary:
        (temporary / "images").mkdir()
        with progress_bar("painting") as progress:
            for n, name in enumerate(shop.ids):
                Image.fromarray(shop.picture(n)).save(temporary / "images" / f"{name}.png")
                progress(n + 1, len(shop))
        items = {
            "item": ids,
            "title": shop.titles,
            "image": [f"images/{name}.png" for name in shop.ids],
            "brand": [shop.value("brand", n) for n in range(len(shop))],
            "shop": [f"shop-{number}" for number in shop.shop],
            **numbers,
        }
        pq.write_table(pa.table(items), temporary / "items.parquet")
        for split in SPLITS:
            found = shop_clicks(config, split).impressions
            assert isinstance(found, HeldImpressions)
            rows = [slice(a, b) for a, b in zip(found.first, found.after, strict=True)]
            kinds = np.array(["", *BEHAVIOURS])[found.behaviour_kind]
            table = {
                "user": [f"user-{number:05d}" for number in found.user],
                "item": ids[found.item],
                "clicked": found.clicked.astype(np.int8),
                "time": found.time.astype(np.int64),
                "history": [ids[found.behaviour_item[row]] for row in rows],
                "history_kinds": [kinds[row] for row in rows],
                "history_times": [found.behaviour_time[row].astype(np.int64) for row in rows],
            }
            pq.write_table(pa.table(table), temporary / f"{split}.parquet", row_group_size=8192)
