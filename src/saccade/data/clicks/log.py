# mypy: disable-error-code="attr-defined,no-untyped-call"
"""Behaviour logs in a folder: `data=clicks root=FOLDER`. A log may be larger than memory: its row groups are read as
they are needed, and those that were read last are kept.

    items.parquet     item, title, image, and any further columns: text is an id (brand, shop), numbers are statistics
    train.parquet     user, item, clicked, time, history, history_kinds, history_times: an impression a row
    dev.parquet …     likewise; a split may also be a folder of such files, and every file may be a .csv

`image` is the path of a picture from the folder, or a list of numbers, its features. Without a table of items, their
columns stand in the log itself. A log without `history` is one of events, `events.parquet` (user, item, time, kind,
clicked): histories and splits are made of it once (`data.clicks.events`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Int

from saccade.core.errors import SaccadeError
from saccade.data.clicks.events import EVENTS, split_events
from saccade.data.clicks.items import ItemIndex, open_catalogue
from saccade.data.clicks.records import Clicks, HeldImpressions, ImpressionRows, join_rows, no_rows
from saccade.data.clicks.tables import SUFFIXES, TableFile, as_text, by_value, lists, numbers, seconds
from saccade.data.registry import chosen_splits, need_root

ITEMS = "items"
HOLDS = "items.parquet and train.parquet, dev.parquet …, or events.parquet (or .csv)"
FIELDS = ("user", "item", "clicked", "time", "history", "history_kinds", "history_times")
KINDS_FROM = 4  # row groups in which the kinds of behaviour are looked for
CLICK = "click"  # what a behaviour of which nothing is said was


def table_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The tables of a folder by name: a file each, or a folder of files."""
    found: dict[str, tuple[Path, ...]] = {}
    for place in sorted(folder.iterdir()):
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        tables = tuple(file for file in files if file.suffix in SUFFIXES)
        if tables:
            found[place.stem if place.is_file() else place.name] = tables
    return found


def is_click_log(path: Path) -> bool:
    """Whether a folder has a table of impressions or events."""
    if not path.is_dir():
        return False
    return bool({"train", EVENTS} & set(table_files(path)))


def clicks_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    tables = table_files(folder)
    own = tuple(name for name in tables if name not in (ITEMS, EVENTS))
    return {"clicks": own or (("train", "dev", "test") if EVENTS in tables else ())}


def open_clicks_log(split: str, root: Path | None = None) -> Clicks:
    """Raises: SaccadeError if the folder has no such split, a column is missing or holds something else."""
    folder = need_root(root, "clicks", HOLDS)
    tables = table_files(folder)
    known = clicks_splits(folder)["clicks"]
    if not known:
        raise SaccadeError(f"{folder} has no table of impressions or events: data=clicks reads {HOLDS}")
    parts = sorted(chosen_splits(split, known, folder))
    if EVENTS in tables and "train" not in tables:
        events = [TableFile(path) for path in tables[EVENTS]]
        catalogue, index = open_catalogue("clicks", folder, _item_tables(tables, events))
        made = split_events(events, index)
        return Clicks("clicks", split, catalogue, made_log(made, parts, index))
    logs = {name: [TableFile(path) for path in tables[name]] for name in known}
    catalogue, index = open_catalogue("clicks", folder, _item_tables(tables, [t for own in logs.values() for t in own]))
    return Clicks("clicks", split, catalogue, ParquetLog([table for part in parts for table in logs[part]], index))


def made_log(folder: Path, parts: Sequence[str], index: ItemIndex) -> ParquetLog:
    """Splits that `split_events` wrote."""
    return ParquetLog([TableFile(folder / f"{part}.parquet", keyed=True) for part in parts], index)


def _item_tables(tables: dict[str, tuple[Path, ...]], logs: Sequence[TableFile]) -> list[TableFile]:
    return [TableFile(path) for path in tables[ITEMS]] if ITEMS in tables else [*logs]


class ParquetLog:
    """Impressions of Parquet files: the row groups that were read last are kept, up to `held_rows` rows of them."""

    streamed = True

    def __init__(self, tables: Sequence[TableFile], index: ItemIndex, labelled: bool = True) -> None:
        self.index = index
        for table in tables:
            table.need("item", *(("clicked", "user") if labelled else ()))
        self.places = [(table, n) for table in tables for n, rows in enumerate(table.blocks) if rows]
        self._sizes = [table.blocks[n] for table, n in self.places]
        self._ends = np.cumsum(self._sizes)
        self.held_rows = 1 << 18
        self._held: OrderedDict[tuple[int, int], ImpressionRows] = OrderedDict()
        self.behaviours = self._find_kinds()

    @property
    def blocks(self) -> Sequence[int]:
        return self._sizes

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def hold(self, rows: int) -> None:
        self.held_rows = rows

    def _find_kinds(self) -> tuple[str, ...]:
        found: set[str] = set()
        for table, block in [place for place in self.places if "history_kinds" in place[0].columns][:KINDS_FROM]:
            for rows in table.batches(("history_kinds",), blocks=(block,)):
                values, _ = lists(rows["history_kinds"], f"{table.path}: history_kinds")
                found |= {value for value in pc.unique(as_text(values)).to_pylist() if value}
        return tuple(sorted(found)) or (CLICK,)

    def rows(self, numbers: Int[np.ndarray, " impression"], longest: int) -> ImpressionRows:
        numbers = np.asarray(numbers, dtype=np.int64)
        if not len(numbers):
            return no_rows(longest)
        block = np.searchsorted(self._ends, numbers, side="right")
        order = np.argsort(block, kind="stable")
        parts = []
        for own in np.split(order, np.flatnonzero(np.diff(block[order])) + 1):
            which = int(block[own[0]])
            first = int(self._ends[which]) - self._sizes[which]
            parts.append(self._block(which, longest).select(numbers[own] - first))
        return join_rows(parts).select(np.argsort(order, kind="stable"))

    def _block(self, which: int, longest: int) -> ImpressionRows:
        if (which, longest) in self._held:
            self._held.move_to_end((which, longest))
            return self._held[which, longest]
        table, block = self.places[which]
        parts = [self._decode(table, rows, longest) for rows in table.batches(FIELDS, blocks=(block,))]
        if sum(len(part) for part in parts) != self._sizes[which]:
            raise SaccadeError(f"{table.path} is damaged: its row group {block} has not as many rows as it says")
        found = join_rows(parts)
        self._held[which, longest] = found
        while len(self._held) > 1 and sum(len(kept) for kept in self._held.values()) > self.held_rows:
            self._held.popitem(last=False)
        return found

    def _decode(self, table: TableFile, rows: dict[str, object], longest: int) -> ImpressionRows:
        return decode(table, rows, longest, self.index, self.behaviours)


def decode(
    table: TableFile, rows: dict[str, object], longest: int, index: ItemIndex, behaviours: Sequence[str]
) -> ImpressionRows:
    """Columns as arrays. Raises: SaccadeError if one holds something else than it should."""

    def where(column: str) -> str:
        return f'{table.path}: the column "{table.columns[column]}"'

    items = index.rows(table.keys(rows["item"]))
    count = len(items)
    if (items == index.unknown).any():
        name = as_text(rows["item"])[int(np.argmax(items == index.unknown))].as_py()
        raise SaccadeError(f"{where('item')} names the item {name!r}, of which nothing is known")
    nothing = np.full(count, np.nan)
    clicked = numbers(rows["clicked"], where("clicked")) if "clicked" in rows else nothing
    if not np.isin(clicked[~np.isnan(clicked)], (0, 1)).all():
        raise SaccadeError(f"{where('clicked')} must hold 0 and 1")
    now = seconds(rows["time"], where("time")) if "time" in rows else nothing
    values, lengths = lists(rows["history"], where("history")) if "history" in rows else (None, np.zeros(count, int))
    past = index.rows(table.keys(values)) if values is not None else np.zeros(0, np.int64)
    kinds, times = np.ones(len(past), np.int64), np.full(len(past), np.nan)
    place = {name: n for n, name in enumerate(behaviours, start=1)}
    for column in ("history_kinds", "history_times"):
        if column not in rows:
            continue
        own, own_lengths = lists(rows[column], where(column))
        if not np.array_equal(own_lengths, lengths):
            raise SaccadeError(f"{where(column)} must have as many entries in every row as history has")
        if column == "history_kinds":
            kinds = by_value(own, lambda names: np.array([place.get(name, 0) for name in names], dtype=np.int64))
        else:
            times = seconds(own, where(column))
    after = np.cumsum(lengths)
    users = table.keys(rows["user"]) if "user" in rows else np.arange(count)
    held = HeldImpressions(
        tuple(behaviours), users, items, clicked.astype(np.float32), now, after - lengths, after, past, kinds, times
    )
    return held.rows(np.arange(count), longest)
