# mypy: disable-error-code="attr-defined,no-untyped-call"
"""A catalogue from tables: every item once, in arrays of the cache that are mapped; made in one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import pyarrow.compute as pc
from jaxtyping import Int64

from saccade.core.arrow import map_batches
from saccade.core.cache import cached, close_to_others
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_folder, only_one, read_json, write_json
from saccade.core.progress import progress_bar
from saccade.data.clicks.records import Catalogue, key_of
from saccade.data.clicks.tables import TableFile, as_text, is_number, lists, numbers, vectors
from saccade.data.records import CaptionedPhotos

FORMAT = 1
TEXTS = pa.schema([("item", pa.string()), ("title", pa.string()), ("picture", pa.string())])


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """From an item's key to its row; the last row is that of unknown items."""

    keys: Int64[np.ndarray, " item"]  # in order
    place: Int64[np.ndarray, " item"]  # the row of each
    unknown: int

    @classmethod
    def of(cls, keys: Int64[np.ndarray, " item"]) -> ItemIndex:
        """Of keys by row; the last is that of unknown items."""
        known = np.array(keys[:-1])
        place = np.argsort(known, kind="stable")
        return cls(known[place], place, len(keys) - 1)

    def rows(self, wanted: Int64[np.ndarray, " item"]) -> Int64[np.ndarray, " item"]:
        if not len(self.keys):
            return np.full(len(wanted), self.unknown)
        at = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.place[at], self.unknown)


class TextColumn(Sequence[str]):
    """One column of mapped Arrow batches, read as it is asked for."""

    def __init__(self, batches: Sequence[pa.RecordBatch], name: str) -> None:
        self.parts = [batch.column(batch.schema.get_field_index(name)) for batch in batches]
        self.ends = np.cumsum([len(part) for part in self.parts])

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        part = int(np.searchsorted(self.ends, place, side="right"))
        first = int(self.ends[part - 1]) if part else 0
        return self.parts[part][place - first].as_py() or ""

    def __iter__(self) -> Iterator[str]:
        for part in self.parts:
            yield from (value or "" for value in part.to_pylist())


def open_catalogue(name: str, folder: Path, tables: Sequence[TableFile]) -> tuple[Catalogue, ItemIndex]:
    """The items of these tables, the first row of each; further columns of text are ids, those of numbers statistics.

    Raises: SaccadeError if a table has no items, or vectors of several lengths.
    """
    facts = [(str(t.path.resolve()), (s := t.path.stat()).st_size, s.st_mtime_ns) for t in tables]
    place = cached("clicks", f"items-{key_of(str((FORMAT, facts))):x}")
    with only_one(place):
        if not (place / "manifest.json").exists():
            with atomic_folder(place) as temporary:
                _build(temporary, tables)
            close_to_others(place)
    return _open(name, folder, place)


def _open(name: str, folder: Path, place: Path) -> tuple[Catalogue, ItemIndex]:
    manifest = read_json(place / "manifest.json")
    count = manifest["items"]

    def mapped(file: str, dtype: type, width: int) -> np.ndarray:
        if not width or not count:
            return np.zeros((count, width), dtype)
        with explain_os_errors(place / file, "read"):
            return np.memmap(place / file, dtype=dtype, mode="r", shape=(count, width))

    batches = map_batches(place / "texts.arrow", TEXTS, "items")
    ids = mapped("ids.bin", np.int64, len(manifest["fields"]))
    image = mapped("image.bin", np.float32, manifest["image_dim"]) if manifest["image_dim"] else None
    pictures, rows = None, None
    if manifest["pictures"]:
        named = [(n, path) for n, path in enumerate(TextColumn(batches, "picture")) if path]
        rows = np.array([n for n, _ in named], dtype=np.int64)
        items = TextColumn(batches, "item")
        paths = tuple(folder / path for _, path in named)
        ids_of = tuple(items[n] for n, _ in named)
        pictures = CaptionedPhotos(name, "items", ids_of, paths, (), np.zeros(0, dtype=np.int64))
    statistics = mapped("statistics.bin", np.float32, len(manifest["statistics"]))
    fields, names = tuple(manifest["fields"]), tuple(manifest["statistics"])
    titles = TextColumn(batches, "title")
    catalogue = Catalogue(name, ids, fields, titles, statistics, names, image, pictures, rows)
    return catalogue, ItemIndex.of(ids[:, 0])


class _Writer:
    """Arrays that grow row by row."""

    def __init__(self, folder: Path, fields: Sequence[str], statistics: Sequence[str], stack: ExitStack) -> None:
        self.fields, self.statistics, self.seen = fields, statistics, set[int]()
        self.files: dict[str, IO[bytes]] = {
            name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in ("ids", "statistics", "image")
        }
        sink = stack.enter_context(pa.OSFile(str(folder / "texts.arrow"), "wb"))
        self.texts = stack.enter_context(pa.ipc.new_file(sink, TEXTS))
        self.image_dim, self.pictures, self.count = 0, False, 0

    def add(self, table: TableFile, rows: dict[str, pa.Array]) -> None:
        own = table.keys(rows["item"])
        first = {key: row for row, key in reversed([*enumerate(own.tolist())]) if key and key not in self.seen}
        if not first:
            return
        self.seen |= first.keys()
        places = sorted(first.values())
        chosen = {name: column.take(pa.array(places)) for name, column in rows.items()}
        count, where = len(places), f"{table.path}: the column"
        empty = pa.nulls(count, pa.string())
        picture = empty
        if "image" in chosen:
            picture = self.add_images(chosen["image"], f'{where} "{table.columns["image"]}"')
        elif self.image_dim:
            self.files["image"].write(np.zeros((count, self.image_dim), np.float32).tobytes())
        ids = [
            own[places],
            *(table.keys(chosen[name]) if name in chosen else np.zeros(count, np.int64) for name in self.fields),
        ]
        self.files["ids"].write(np.stack(ids, axis=1).astype(np.int64).tobytes())
        known = [
            numbers(chosen[name], f'{where} "{name}"') if name in chosen else np.full(count, np.nan)
            for name in self.statistics
        ]
        if known:
            self.files["statistics"].write(np.stack(known, axis=1).astype(np.float32).tobytes())
        title = as_text(chosen["title"]) if "title" in chosen else empty
        self.write_texts([as_text(chosen["item"]), title, picture])
        self.count += count

    def add_images(self, column: pa.Array, where: str) -> pa.Array:
        """Vectors are written; of pictures, the paths are given back."""
        count = len(column)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if text and not _is_vector(column):
            self.pictures |= bool(pc.any(pc.is_valid(column)).as_py())
            return as_text(column)
        if pa.types.is_null(column.type):
            return pa.nulls(count, pa.string())
        try:
            lists(column.slice(0, 0), where)
        except SaccadeError as error:
            raise SaccadeError(f"{where} must hold paths of pictures or lists of numbers, not {column.type}") from error
        found = vectors(column, where)
        if found.shape[1]:
            if self.image_dim not in (0, found.shape[1]):
                raise SaccadeError(
                    f"{where} must hold vectors of one length, there are some of {self.image_dim} and {found.shape[1]}"
                )
            if not self.image_dim:
                self.files["image"].write(np.zeros((self.count, found.shape[1]), np.float32).tobytes())
            self.image_dim = found.shape[1]
        elif self.image_dim:
            found = np.zeros((count, self.image_dim), np.float32)
        self.files["image"].write(found.tobytes())
        return pa.nulls(count, pa.string())

    def write_texts(self, columns: Iterable[pa.Array]) -> None:
        self.texts.write_batch(pa.record_batch([*columns], schema=TEXTS))

    def finish(self) -> None:
        """The unknown item."""
        self.files["ids"].write(np.zeros(1 + len(self.fields), np.int64).tobytes())
        self.files["statistics"].write(np.full(len(self.statistics), np.nan, np.float32).tobytes())
        self.files["image"].write(np.zeros(self.image_dim, np.float32).tobytes())
        self.write_texts([pa.array([""])] * 3)


def _build(folder: Path, tables: Sequence[TableFile]) -> None:
    fields: list[str] = []
    statistics: list[str] = []
    for table in tables:
        table.need("item")
        sample = next(table.batches((), table.others), {}) if table.others else {}
        for name in table.others:
            if name not in (*fields, *statistics) and not _is_nested(table.kind_of(name)):
                (statistics if is_number(table, name, sample.get(name)) else fields).append(name)
    total = sum(sum(table.blocks) for table in tables)
    with ExitStack() as stack, progress_bar("collecting items") as progress:
        writer = _Writer(folder, fields, statistics, stack)
        done = 0
        for table in tables:
            others = [name for name in table.others if name in (*fields, *statistics)]
            for rows in table.batches(("item", "title", "image"), others):
                writer.add(table, rows)
                done += len(rows["item"])
                progress(done, total)
        writer.finish()
    if not writer.count:
        raise SaccadeError(f"{tables[0].path} names no item")
    facts = {"items": writer.count + 1, "fields": ["item", *fields], "statistics": statistics}
    write_json(folder / "manifest.json", facts | {"image_dim": writer.image_dim, "pictures": writer.pictures})


def _is_vector(column: pa.Array) -> bool:
    """Whether the first text of a column, of a CSV file, is a list of numbers."""
    first = next((value for value in column.drop_null().to_pylist() if value.strip()), "")
    parts = first.strip(" []").replace(",", " ").replace("|", " ").replace(";", " ").split()
    try:
        return len([float(part) for part in parts]) > 1
    except ValueError:
        return False


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind))
