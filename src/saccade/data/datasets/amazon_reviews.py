# mypy: disable-error-code="attr-defined,no-untyped-call"
"""Amazon reviews (McAuley et al.): `data=amazon_reviews root=FOLDER`, a review being a behaviour.

    reviews_Electronics_5.json.gz    a JSON mapping a line: reviewerID, asin, overall, unixReviewTime (2014 and 2018),
                                     or user_id, parent_asin, rating, timestamp (2023)
    meta_Electronics.json.gz         asin, title, brand, categories, price … (of 2014, Python literals), or of 2023
    image_features_Electronics.b     optional: ten bytes of asin and 4,096 float32 each; or images/ASIN.jpg

Reviews become events of the kinds "1 star" … "5 stars", of which impressions are made (`data.clicks.events`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import pyarrow.parquet as pq

from saccade.core.cache import cached, close_to_others
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_folder, only_one
from saccade.core.progress import progress_bar
from saccade.data.clicks import Clicks, key_of
from saccade.data.clicks.events import SPLITS, split_events
from saccade.data.clicks.items import open_catalogue
from saccade.data.clicks.log import made_log
from saccade.data.clicks.tables import TableFile
from saccade.data.registry import chosen_splits, find_part, need_root
from saccade.data.text_files import read_lines

REVIEWS = ("reviews_*.json*", "*_5.json*", "*reviews*.jsonl*")
META = ("meta_*.json*",)
FEATURES = ("image_features_*.b",)
HOLDS = "reviews_*.json.gz (or *_5.json.gz) and meta_*.json.gz"
ASIN_BYTES, FEATURE_DIM = 10, 4096
ROWS_AT_ONCE = 4096
FORMAT = 1
EVENTS = pa.schema([("user", pa.string()), ("item", pa.string()), ("time", pa.int64()), ("kind", pa.string())])
ITEMS = pa.schema(
    [
        *((name, pa.string()) for name in ("item", "title", "brand", "category")),
        *(("price", pa.float32()), ("rank", pa.float32()), ("ratings", pa.float32())),
    ]
)


def amazon_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    return {"clicks": SPLITS if find_part(folder, REVIEWS) else ()}


def open_amazon_reviews(split: str, root: Path | None = None) -> Clicks:
    """Raises: SaccadeError if a file is missing or a line of it is no review."""
    folder = need_root(root, "amazon_reviews", HOLDS)
    reviews, meta, features = (find_part(folder, names) for names in (REVIEWS, META, FEATURES))
    if not reviews or not meta:
        missing = META[0] if reviews else REVIEWS[0]
        raise SaccadeError(f"{folder} has no {missing}: data=amazon_reviews reads {HOLDS}")
    files = (*reviews, *meta, *features)
    facts = [(str(path.resolve()), (s := path.stat()).st_size, s.st_mtime_ns) for path in files]
    place = cached("clicks", f"amazon-{key_of(str((FORMAT, facts))):x}")
    with only_one(place):
        if not place.exists():
            with atomic_folder(place) as temporary:
                known = _write_events(reviews, temporary / "events.parquet")
                _write_items(folder, meta, features, known, temporary / "items.parquet")
            close_to_others(place)
    parts = sorted(chosen_splits(split, SPLITS, folder))
    events = [TableFile(place / "events.parquet")]
    catalogue, index = open_catalogue("amazon_reviews", folder, [TableFile(place / "items.parquet"), *events])
    return Clicks("amazon_reviews", split, catalogue, made_log(split_events(events, index), parts, index))


def _entries(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The mappings of a file's lines, each with where it stands."""
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            try:  # as of 2014
                value = ast.literal_eval(line)
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
                raise SaccadeError(f"{where} is neither JSON nor a Python literal") from error
        if not isinstance(value, dict):
            raise SaccadeError(f"{where} is no mapping")
        yield where, value


def _first(entry: Mapping[str, Any], *names: str) -> Any:
    return next((entry[name] for name in names if entry.get(name) not in (None, "", [])), None)


def _rows(entries: Iterator[dict[str, Any]], schema: pa.Schema, target: Path) -> None:
    with pq.ParquetWriter(target, schema) as writer:
        held: list[dict[str, Any]] = []
        for row in entries:
            held.append(row)
            if len(held) == ROWS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(held, schema))
                held = []
        writer.write_table(pa.Table.from_pylist(held, schema))


def _write_events(paths: tuple[Path, ...], target: Path) -> set[str]:
    """The reviews as events; given back are the items that they are of."""
    known: set[str] = set()

    def rows() -> Iterator[dict[str, Any]]:
        for path in paths:
            for where, entry in _entries(path):
                user, item = _first(entry, "reviewerID", "user_id"), _first(entry, "parent_asin", "asin")
                time, stars = _first(entry, "unixReviewTime", "timestamp"), _first(entry, "overall", "rating")
                if not isinstance(user, str) or not isinstance(item, str) or not isinstance(time, int):
                    raise SaccadeError(f"{where}: a review has a user (reviewerID), an item (asin) and a time")
                known.add(item)
                mark = int(stars) if isinstance(stars, int | float) and 1 <= stars <= 5 else None
                kind = "review" if mark is None else f"{mark} star{'s' if mark > 1 else ''}"
                yield {"user": user, "item": item, "time": time, "kind": kind}

    with progress_bar(f"reading {paths[0].name}"):
        _rows(rows(), EVENTS, target)
    if not known:
        raise SaccadeError(f"{paths[0]} holds no review")
    return known


def _number(value: Any) -> float | None:
    text = str(value).replace("$", "").replace(",", "").strip() if value is not None else ""
    try:
        return float(text)
    except ValueError:
        return None


def _write_items(
    folder: Path, paths: tuple[Path, ...], features: tuple[Path, ...], known: set[str], target: Path
) -> None:
    offsets = {asin: (path, place) for path in features for asin, place in _feature_places(path) if asin in known}
    files = () if offsets else sorted((folder / "images").glob("*"))
    pictures = {path.stem: f"images/{path.name}" for path in files}
    image = pa.list_(pa.float32()) if offsets else pa.string()
    schema = ITEMS.append(pa.field("image", image)) if offsets or pictures else ITEMS

    def rows() -> Iterator[dict[str, Any]]:
        for path in paths:
            for _, entry in _entries(path):
                item = _first(entry, "parent_asin", "asin")
                if item not in known:
                    continue
                groups = _first(entry, "categories", "category", "main_category")
                while isinstance(groups, list) and groups:
                    groups = groups[-1]
                rank = _first(entry, "salesRank")
                rank = next(iter(rank.values()), None) if isinstance(rank, dict) else None
                row = {
                    "item": item,
                    "title": str(_first(entry, "title") or ""),
                    "brand": _text(_first(entry, "brand", "store")),
                    "category": _text(groups),
                    "price": _number(_first(entry, "price")),
                    "rank": _number(rank),
                    "ratings": _number(_first(entry, "rating_number")),
                }
                if offsets:
                    row["image"] = _vector(*offsets[item]) if item in offsets else None
                elif pictures:
                    row["image"] = pictures.get(item)
                yield row

    with progress_bar(f"reading {paths[0].name}"):
        _rows(rows(), schema, target)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _feature_places(path: Path) -> Iterator[tuple[str, int]]:
    """(item, where its vector begins) of a file of image features."""
    record = ASIN_BYTES + 4 * FEATURE_DIM
    with explain_os_errors(path, "read"):
        size = path.stat().st_size
        if size % record:
            raise SaccadeError(f"{path} is cut short: records of {record:,} bytes were expected")
        with path.open("rb") as file:
            for place in range(0, size, record):
                file.seek(place)
                yield file.read(ASIN_BYTES).decode("ascii", errors="replace"), place + ASIN_BYTES


def _vector(path: Path, place: int) -> list[float]:
    with explain_os_errors(path, "read"):
        found = np.fromfile(path, dtype="<f4", count=FEATURE_DIM, offset=place)
    if not np.isfinite(found).all():
        raise SaccadeError(f"{path}: the vector at byte {place:,} has a number that is not finite")
    return [float(value) for value in found]
