# mypy: disable-error-code="attr-defined,no-untyped-call"
"""Tables of behaviour logs: Parquet, read some rows at a time; CSV, turned into Parquet in the cache once.

Columns are known by several names, those that published logs use. A fault names the file and the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from jaxtyping import Float32, Float64, Int64

from saccade.core.cache import cached, close_to_others
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import atomic_file, only_one
from saccade.core.hub import first_line
from saccade.core.progress import progress_bar
from saccade.data.clicks.records import key_of

NAMES = {  # what a column holds, and what it may be called
    "user": ("user", "user_id", "uid", "reviewerID"),
    "item": ("item", "item_id", "product_id", "asin", "parent_asin"),
    "clicked": ("clicked", "click", "label"),
    "time": ("time", "timestamp", "unixReviewTime"),
    "kind": ("kind", "behaviour", "behavior", "behavior_type", "event", "event_type"),
    "history": ("history", "history_items"),
    "history_kinds": ("history_kinds", "history_behaviours", "history_behaviors"),
    "history_times": ("history_times", "history_timestamps"),
    "title": ("title", "name"),
    "image": ("image", "image_path", "image_features"),
}
RESERVED = {name for names in NAMES.values() for name in names} | {"split"}
SUFFIXES = (".parquet", ".csv")
ROWS_AT_ONCE = 8192
READ_BUFFER = 1 << 20  # bytes: columns are read piece by piece
MILLISECONDS = 1e11  # times above it are no seconds
SEPARATORS = r"[ |;,]+"  # of lists in a CSV file


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raises: SaccadeError for whatever Arrow finds wrong with a file."""
    try:
        with explain_os_errors(path, "read"):
            yield
    except (pa.ArrowException, UnicodeError) as error:
        raise SaccadeError(f"{path} cannot be read as a table: {first_line(error)}") from error


class TableFile:
    """One file of rows."""

    def __init__(self, path: Path, keyed: bool = False) -> None:
        self.path = path
        self.keyed = keyed  # ids are keys already: a file that was made here
        if path.suffix not in SUFFIXES:
            raise SaccadeError(f"{path}: a table is a .parquet or .csv file")
        if not path.is_file():
            raise SaccadeError(f"{path} does not exist")
        source = csv_as_parquet(path) if path.suffix == ".csv" else path
        with explained(path):
            self.file = pq.ParquetFile(source, pre_buffer=False, buffer_size=READ_BUFFER)
            given = self.file.schema_arrow.names
        self.columns: dict[str, str] = {}
        for holds, names in NAMES.items():
            found = [name for name in names if name in given]
            if found:
                self.columns[holds] = found[0]
        self.others = tuple(name for name in given if name not in RESERVED)
        meta = self.file.metadata
        self.blocks = tuple(meta.row_group(n).num_rows for n in range(meta.num_row_groups))

    def need(self, *holds: str) -> None:
        """Raises: SaccadeError if there is no such column."""
        for one in holds:
            if one not in self.columns:
                raise SaccadeError(
                    f'{self.path} has no column "{one}" ({" or ".join(NAMES[one])} was expected; there are: '
                    f"{', '.join(self.file.schema_arrow.names)})"
                )

    def keys(self, column: pa.Array) -> Int64[np.ndarray, " row"]:
        """Of a column of ids."""
        if not self.keyed:
            return by_value(column, lambda values: np.array([key_of(value) for value in values], dtype=np.int64))
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)

    def kind_of(self, name: str) -> pa.DataType:
        return self.file.schema_arrow.field(name).type

    def batches(
        self, holds: Sequence[str], others: Sequence[str] = (), blocks: Sequence[int] | None = None
    ) -> Iterator[dict[str, pa.Array]]:
        """Some rows at a time, by what their columns hold; those that are not there are left out."""
        names = {self.columns[one]: one for one in holds if one in self.columns} | {name: name for name in others}
        with explained(self.path):
            groups = [*(range(len(self.blocks)) if blocks is None else blocks)]
            for batch in self.file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=[*names]):
                batch.validate(full=True)  # a damaged file's text may be none
                yield {names[name]: batch.column(n) for n, name in enumerate(batch.schema.names) if name in names}


def csv_as_parquet(path: Path) -> Path:
    """The same rows, all of them text, in the cache: made once, some rows at a time."""
    facts = path.stat()
    name = key_of(f"{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}")
    target = cached("clicks", f"{name:x}.parquet")
    with only_one(target):
        if not target.exists():
            with explained(path), progress_bar(f"reading {path.name}") as progress, atomic_file(target) as temporary:
                _convert(path, temporary, progress)
            close_to_others(target)
    return target


def _convert(path: Path, target: Path, progress: Callable[[int, int], None]) -> None:
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig", errors="replace").strip()
    names = [name.strip().strip('"') for name in header.split(",")]
    options = pyarrow.csv.ConvertOptions(
        column_types={name: pa.string() for name in names}, strings_can_be_null=True, null_values=[""]
    )
    size = max(path.stat().st_size, 1)
    with pyarrow.csv.open_csv(path, convert_options=options) as rows:
        schema = pa.schema([(name, pa.string()) for name in rows.schema.names])
        with pq.ParquetWriter(target, schema) as writer:
            done = 0
            for batch in rows:
                done += batch.nbytes
                writer.write_batch(batch.cast(schema), row_group_size=ROWS_AT_ONCE)
                progress(min(done, size), size)


def as_text(column: pa.Array) -> pa.Array:
    """Ids and words, whatever they are stored as."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def by_value(column: pa.Array, of: Callable[[list[str]], np.ndarray], missing: int = 0) -> Int64[np.ndarray, " row"]:
    """A function of text, applied to every different text once."""
    coded = as_text(column).dictionary_encode()
    found = np.append(np.asarray(of(coded.dictionary.to_pylist()), dtype=np.int64).reshape(-1), missing)
    places = pc.fill_null(coded.indices, len(found) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(found[places], dtype=np.int64)


def numbers(column: pa.Array, where: str) -> Float64[np.ndarray, " row"]:
    """Numbers, times as seconds; nan where there is none. Raises: SaccadeError if it holds others."""
    try:
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            column = pc.divide(pc.cast(pc.cast(column, pa.timestamp("ms")), pa.int64()), 1000.0)
        found = pc.cast(column, pa.float64())
    except pa.ArrowException as error:
        raise SaccadeError(f"{where} must hold numbers: {first_line(error)}") from error
    return np.asarray(pc.fill_null(found, float("nan")).to_numpy(zero_copy_only=False), dtype=np.float64)


def seconds(column: pa.Array, where: str) -> Float64[np.ndarray, " row"]:
    found = numbers(column, where)
    return np.where(found > MILLISECONDS, found / 1000, found)


def lists(column: pa.Array, where: str) -> tuple[pa.Array, Int64[np.ndarray, " row"]]:
    """The entries of all lists, one after the other, and how many each row has; text is cut at spaces, | ; and commas.

    Raises: SaccadeError if it holds no lists.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        trimmed = pc.utf8_trim(as_text(column), " []|;,")
        column = pc.split_pattern_regex(trimmed, SEPARATORS)
        empty = pc.fill_null(pc.equal(trimmed, ""), True)
        column = pc.if_else(empty, pa.scalar([], column.type), column)
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise SaccadeError(f"{where} must hold lists, not {kind}")
    count = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return column.flatten(), np.asarray(count, dtype=np.int64)


def vectors(column: pa.Array, where: str) -> Float32[np.ndarray, "row dim"]:
    """Lists of equally many numbers; zeros where there is none. Raises: SaccadeError if they differ in length."""
    values, count = lists(column, where)
    found = numbers(values, where).astype(np.float32)
    sizes = set(count.tolist()) - {0}
    if len(sizes) > 1:
        raise SaccadeError(f"{where} must hold vectors of one length, there are some of {min(sizes)} and {max(sizes)}")
    if not np.isfinite(found).all():
        raise SaccadeError(f"{where} holds a vector with a number that is missing or not finite")
    result = np.zeros((len(count), sizes.pop() if sizes else 0), np.float32)
    result[count > 0] = found.reshape(int((count > 0).sum()), result.shape[1])
    return result


def is_number(table: TableFile, name: str, sample: Any) -> bool:
    """Whether a column is a statistic rather than an id: numbers, in a column whose name does not end in "id"."""
    kind = table.kind_of(name)
    if name.lower().endswith("id"):
        return False
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return True
    if table.path.suffix != ".csv" or sample is None:
        return False
    try:
        numbers(sample, name)
    except SaccadeError:
        return False
    return True
