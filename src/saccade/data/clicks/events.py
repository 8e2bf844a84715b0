# mypy: disable-error-code="attr-defined,no-untyped-call"
"""From a log of events (who did what with which item, and when) to impressions with histories, in the cache.

The numbers of all events are sorted in memory, some forty bytes an event; what is written is streamed like any other
log. Where events say whether an item was clicked on, each is an impression, and users are split by their ids: 80, 10
and 10 in a hundred. Where all events are what users did (reviews), each but a user's first is an impression that was
clicked on, beside an item drawn at random that was not; a user's last event is for test, the one before for dev.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import pyarrow.parquet as pq
from jaxtyping import Float, Int, Int64

from saccade.core.cache import cached, close_to_others
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_folder, only_one
from saccade.core.progress import progress_bar
from saccade.data.clicks.items import ItemIndex
from saccade.data.clicks.records import key_of
from saccade.data.clicks.tables import TableFile, as_text, by_value, numbers, seconds

EVENTS = "events"
FORMAT = 1
LONGEST = 50  # behaviours that are kept of a history
ROW_GROUP = 8192
SPLITS = ("train", "dev", "test")
SCHEMA = pa.schema(
    [
        *(("user", pa.int64()), ("item", pa.int64()), ("clicked", pa.int8()), ("time", pa.float64())),
        *(("history", pa.list_(pa.int64())), ("history_kinds", pa.list_(pa.string()))),
        ("history_times", pa.list_(pa.float64())),
    ]
)


@dataclass(frozen=True, eq=False)
class Events:
    """Columns of numbers."""

    user: Int64[np.ndarray, " event"]
    item: Int64[np.ndarray, " event"]  # rows of the catalogue
    time: Float[np.ndarray, " event"]
    kind: Int[np.ndarray, " event"]  # of `kinds`
    clicked: Float[np.ndarray, " event"] | None
    kinds: tuple[str, ...]

    def sorted(self) -> Events:
        """User after user, each in order of time."""
        order = np.lexsort((self.time, self.user))
        clicked = None if self.clicked is None else self.clicked[order]
        user, item, time, kind = (part[order] for part in (self.user, self.item, self.time, self.kind))
        return Events(user, item, time, kind, clicked, self.kinds)


def split_events(tables: Sequence[TableFile], index: ItemIndex) -> Path:
    """A folder with train.parquet, dev.parquet and test.parquet, made if it is not there."""
    facts = [(str(t.path.resolve()), (s := t.path.stat()).st_size, s.st_mtime_ns) for t in tables]
    place = cached("clicks", f"events-{key_of(str((FORMAT, facts))):x}")
    with only_one(place):
        if not place.exists():
            with atomic_folder(place) as temporary:
                write_impressions(read_events(tables, index).sorted(), index, temporary)
            close_to_others(place)
    return place


def read_events(tables: Sequence[TableFile], index: ItemIndex) -> Events:
    columns: list[tuple[np.ndarray, ...]] = []
    names: dict[str, int] = {}
    labelled = all("clicked" in table.columns for table in tables)
    for table in tables:
        table.need("user", "item", "time")
        for rows in table.batches(("user", "item", "time", "kind", "clicked")):
            count = len(rows["item"])
            kind = np.zeros(count, np.int64)
            if "kind" in rows:
                kind = by_value(rows["kind"], lambda own: np.array([names.setdefault(n, len(names)) for n in own]))
            clicked = numbers(rows["clicked"], f"{table.path}: clicked") if labelled else np.ones(count)
            time = seconds(rows["time"], f"{table.path}: time")
            items = index.rows(table.keys(rows["item"]))
            if (items == index.unknown).any():
                name = as_text(rows["item"])[int(np.argmax(items == index.unknown))].as_py()
                raise SaccadeError(f"{table.path} names the item {name!r}, of which nothing is known")
            columns.append((table.keys(rows["user"]), items, time, kind, clicked))
    user, item, time, kind, clicked = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Events(user, item, time, kind, clicked if labelled else None, tuple(names) or ("click",))


def write_impressions(events: Events, index: ItemIndex, folder: Path) -> None:
    name_of = np.zeros(index.unknown + 1, np.int64)
    name_of[index.place] = index.keys
    did = np.ones(len(events.user), bool) if events.clicked is None else events.clicked == 1
    position = np.flatnonzero(did)  # of behaviours among the events
    before = np.cumsum(did) - did
    begin = np.flatnonzero(np.r_[True, np.diff(events.user) != 0]) if len(events.user) else np.zeros(0, int)
    first = np.repeat(before[begin], np.diff(np.r_[begin, len(events.user)]))
    since = np.maximum(first, before - LONGEST)
    last = np.diff(np.r_[events.user, -1]) != 0
    if events.clicked is None:
        split = np.where(last, 2, np.where(np.r_[last[1:], False], 1, 0))
        chosen = np.flatnonzero(before > first)
    else:
        part = events.user % 10
        split, chosen = np.where(part < 8, 0, np.where(part == 8, 1, 2)), np.arange(len(events.user))
    raw = np.random.PCG64(len(events.user)).random_raw(len(events.user))
    negative = (raw % np.uint64(max(index.unknown, 1))).astype(np.int64)
    kinds = np.array(events.kinds, dtype=object)

    def table(own: Int[np.ndarray, " event"]) -> pa.Table:
        lengths = before[own] - since[own]
        offsets = np.r_[0, np.cumsum(lengths)]
        places = position[np.repeat(since[own] - offsets[:-1], lengths) + np.arange(offsets[-1])]
        listed = lambda values: pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values))  # noqa: E731
        past = [events.item[places], kinds[events.kind[places]], events.time[places]]
        rows = [name_of[past[0]], past[1], past[2]]
        clicked = np.ones(len(own), np.int8) if events.clicked is None else events.clicked[own].astype(np.int8)
        columns = [events.user[own], name_of[events.item[own]], clicked, events.time[own]]
        found = pa.table([*columns, *(listed(each) for each in rows)], SCHEMA.names).cast(SCHEMA)
        if events.clicked is not None:
            return found
        other = found.set_column(1, "item", pa.array(name_of[negative[own]])).set_column(
            2, "clicked", pa.array(np.zeros(len(own), np.int8))
        )
        return pa.concat_tables([found, other.cast(SCHEMA)])

    with progress_bar("making histories") as progress:
        for number, name in enumerate(SPLITS):
            own = chosen[split[chosen] == number]
            with pq.ParquetWriter(folder / f"{name}.parquet", SCHEMA) as writer:
                for part in _pieces(own):
                    writer.write_table(table(part), row_group_size=ROW_GROUP)
                    progress(int(part[-1]) + 1, max(len(events.user), 1))


def _pieces(own: Int[np.ndarray, " event"]) -> Iterator[Int[np.ndarray, " event"]]:
    return (own[start : start + ROW_GROUP] for start in range(0, len(own), ROW_GROUP))
