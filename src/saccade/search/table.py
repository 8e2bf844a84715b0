# mypy: disable-error-code="attr-defined"
"""The Lance table of an index: one row a picture, and what LanceDB leaves to its users.

Lance commits atomically and lets readers keep the version they opened. What it does not do is done here: one writer at
a time (two would both succeed, with rows twice), files forced to the disk before a commit is acknowledged, versions
kept for a grace period since readers may still be on them, files that a killed writer left removed by the next one,
rows in the order asked for, and a checksum in every row, since Lance returns flipped bytes as data.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line

from saccade.core.errors import SaccadeError, did_you_mean, explain_os_errors
from saccade.core.files import only_one, write_text

NAME = "pictures"
WRITING = "writing"  # a file that is there while a writer is at work: one that finds it knows of a kill
GRACE_S = 3600.0  # how long files of older versions are kept for readers that are still on them
MAX_WHERE = 2000  # characters of a filter
HIDDEN = ("vector", "codes", "scale", "boxes", "thumbnail", "checksum", "thumbnail_checksum")  # no metadata
NULL = 2**31 - 1

SOURCE = re.compile(r",? ?/\S+\.rs:\d+:\d+")  # a place in Lance's own source, which its errors end with
_SQL = """and or not in is null like ilike between true false date timestamp interval case when then else end cast as
int integer bigint double float string varchar lower upper length abs round starts_with ends_with contains strpos
array_has array_has_any array_has_all array_length coalesce escape"""
SQL_WORDS = frozenset(_SQL.split())  # that a filter may hold beside columns
REST_CLIENT = "lance_namespace_urllib3_client"


def import_lancedb() -> Any:
    """Raises: SaccadeError if it is not installed."""
    try:
        try:
            with _without_rest_client():
                import lancedb
        except ImportError:
            import lancedb  # a version that needs more of it
    except ImportError as error:
        raise SaccadeError(
            "an index is a table of LanceDB, which is not here: pip install 'saccade[search]'"
        ) from error
    # Decoders of pictures are forks of this process, and never touch it.
    warnings.filterwarnings("ignore", message="lancedb fork support is experimental")
    warnings.filterwarnings("ignore", message=r"optimize\(cleanup_older_than=0\)")  # said in our own help
    return lancedb


@contextmanager
def _without_rest_client() -> Iterator[None]:
    """LanceDB takes data classes from modules of a package whose `__init__` imports a whole REST client, which takes
    longer than all else of LanceDB. While this lasts the package is there, and its `__init__` was not run."""
    found = find_spec(REST_CLIENT) if REST_CLIENT not in sys.modules else None
    if found is None:
        yield
        return
    sys.modules[REST_CLIENT] = module_from_spec(found)
    try:
        yield
    finally:
        del sys.modules[REST_CLIENT]  # whoever imports it gets all of it


def schema(vector_dim: int, extra: Mapping[str, str] | None = None) -> pa.Schema:
    """The columns of an index: `vector_dim` is 0 for models without a vector of whole pictures."""
    kinds = {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("source", pa.string()),  # the folder, list or store that it came from
        pa.field("kind", pa.string()),  # photo, video or regions (of a feature store)
        pa.field("size", pa.int64()),  # of the file, in bytes
        pa.field("mtime", pa.int64()),  # … when it was changed, in nanoseconds
        pa.field("hash", pa.string()),  # … of its content
        pa.field("taken", pa.timestamp("s")),  # when, by the camera's clock
        pa.field("year", pa.int32()),
        pa.field("month", pa.int32()),
        pa.field("camera", pa.string()),
        pa.field("folder", pa.string()),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("seconds", pa.float64()),  # of a video
        pa.field("labels", pa.list_(pa.string())),
        pa.field("regions", pa.int32(), nullable=False),  # how many codes there are
        pa.field("codes", pa.large_binary(), nullable=False),  # [region dim], int8 or float16, row by row
        pa.field("scale", pa.float32(), nullable=False),  # what int8 codes are multiplied by
        pa.field("boxes", pa.binary(), nullable=False),  # [region 4] float32, 0..1
        pa.field("thumbnail", pa.binary()),  # a JPEG
        pa.field("checksum", pa.int64(), nullable=False),  # see `checksum`
        pa.field("thumbnail_checksum", pa.int64(), nullable=False),
    ]
    if vector_dim:
        fields.append(pa.field("vector", pa.list_(pa.float16(), vector_dim), nullable=False))
    fields += [pa.field(name, kinds[kind]) for name, kind in (extra or {}).items()]
    return pa.schema(fields)


def checksum(id: str, codes: Any, scale: float, boxes: Any, vector: Any) -> int:
    """CRC-32 of what a search computes with, and of whose it is."""
    found = zlib.crc32(id.encode("utf-8", "surrogatepass"))
    for part in (codes, np.float32(scale).tobytes(), boxes, vector):
        found = zlib.crc32(part, found)
    return found


@contextmanager
def explained(folder: Path | str, doing: str) -> Iterator[None]:
    """Turn what Lance raises, panics of its Rust code included, into one sentence."""
    try:
        yield
    except (SaccadeError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a PanicException of Rust is no Exception
        if isinstance(error, MemoryError):
            raise
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if (told := re.search(r"<Message>(.*?)</Message>|message: \"([^\"]*)\"", line)) is not None:
            line = told[1] or told[2]  # what object storage says, or the system, deep within
        if "No space left" in str(error):
            raise SaccadeError(f"the disk is full: could not write {folder}") from error
        raise SaccadeError(f"{folder} {doing}: {SOURCE.sub('', line)[:300]}") from error


class Rows:
    """The rows of an index at one version, wherever Lance keeps them."""

    def __init__(self, place: Path | str, table: Any, write: bool = False) -> None:
        self.place, self.table, self.write = place, table, write

    def close(self) -> None:
        """Let go of what is held."""

    # Reading

    def __len__(self) -> int:
        with explained(self.place, "cannot be read"):
            return int(self.table.count_rows())

    @property
    def version(self) -> int:
        return int(self.table.version)

    def refresh(self) -> bool:
        """Go to the newest version; whether there was one."""
        before = self.version
        with explained(self.place, "cannot be read"):
            self.table.checkout_latest()
        return self.version != before

    def columns(self, names: Sequence[str], where: str | None = None, limit: int | None = None) -> pa.Table:
        """Some columns of all rows, or of those that a filter lets through, with their `_rowid`."""
        with explained(self.place, "cannot be read"):
            found = self.table.search().select(list(names)).with_row_id(True)
            if where is not None:
                found = found.where(where)
            return found.limit(limit if limit is not None else NULL).to_arrow()

    def batches(self, names: Sequence[str], size: int = 256) -> Iterator[pa.RecordBatch]:
        """All rows, `size` or fewer at a time."""
        with explained(self.place, "cannot be read"):
            reader = self.table.search().select(list(names)).with_row_id(True).limit(NULL).to_batches(size)
            yield from reader

    def take(self, row_ids: Sequence[int] | np.ndarray, names: Sequence[str]) -> pa.Table:
        """Rows by their `_rowid`, in the order asked for: Lance returns them in its own.

        Raises: SaccadeError if a row is no longer there.
        """
        wanted, places = np.unique(np.asarray(row_ids, dtype=np.int64), return_inverse=True)
        with explained(self.place, "cannot be read"):
            found = self.table.take_row_ids(wanted.tolist()).with_row_id().select(list(names)).to_arrow()
        there = found["_rowid"].to_numpy().astype(np.int64)
        order = np.argsort(there, kind="stable")
        if not np.array_equal(there[order], wanted):
            raise SaccadeError(f"{self.place}: {len(wanted) - len(there):,} rows are gone: open the index again")
        return found.take(order[places])

    def where_row_ids(self, where: str) -> np.ndarray:
        """The `_rowid` of the rows that a filter lets through."""
        clause = self.check_where(where)
        try:
            found = self.table.search().where(clause).select(["id"]).with_row_id(True).limit(NULL).to_arrow()
        except Exception as error:
            raise SaccadeError(f'--where "{where}" cannot be read: {refusal(str(error))}') from error
        return np.asarray(found["_rowid"].to_numpy()).astype(np.int64)

    def check_where(self, where: str) -> str:
        """A filter that names columns of the table and plain SQL alone.

        Raises: SaccadeError if it is too long, or names anything else.
        """
        if len(where) > MAX_WHERE:
            raise SaccadeError(f"--where has {len(where):,} characters, at most {MAX_WHERE:,} are read")
        if any(not c.isprintable() for c in where) or ";" in re.sub(r"'(?:[^']|'')*'", "", where):
            raise SaccadeError("--where takes one condition, without line breaks and semicolons")
        names = [name for name in self.table.schema.names if name not in HIDDEN]
        bare = re.sub(r"'(?:[^']|'')*'", "''", where)
        if "'" in bare.replace("''", "") or "--" in bare or "/*" in bare:
            raise SaccadeError(f'--where "{where}" has a quotation mark that is not closed, or a comment')
        for quoted, word in re.findall(r'[`"]([^`"]*)[`"]|([A-Za-z_]\w*)', bare):
            word = quoted or word
            if word not in names and (quoted or word.lower() not in SQL_WORDS):
                hint = did_you_mean(word, names)
                raise SaccadeError(
                    f'--where: there is no column "{word}"{hint} (there are: {", ".join(sorted(names))})'
                )
        return where

    # Writing

    def put(self, rows: pa.Table, replaces: bool) -> None:
        """Add rows, or put them in the place of those with their ids; on disk when this returns."""
        with explained(self.place, "cannot be written"), explain_os_errors(Path(self.place), "write"):
            if replaces:
                self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
            else:
                self.table.add(rows)
            self.sync()

    def change(self, rows: pa.Table) -> None:
        """Other values in some columns of rows that are there."""
        with explained(self.place, "cannot be written"), explain_os_errors(Path(self.place), "write"):
            self.table.merge_insert("id").when_matched_update_all().execute(rows)
            self.sync()

    def delete(self, ids: Sequence[str]) -> None:
        with explained(self.place, "cannot be written"), explain_os_errors(Path(self.place), "write"):
            for start in range(0, len(ids), 500):
                listed = ", ".join("'" + id.replace("'", "''") + "'" for id in ids[start : start + 500])
                self.table.delete(f"id IN ({listed})")
            self.sync()

    def compact(self, grace_s: float = GRACE_S) -> None:
        """Many small files become few, and what no reader can still need goes."""
        with explained(self.place, "cannot be written"), explain_os_errors(Path(self.place), "write"):
            self.table.optimize(cleanup_older_than=timedelta(seconds=grace_s), delete_unverified=True)
            self.sync()

    def sync(self) -> None:
        """Force what was committed to the disk, where that is ours to do."""

    def fragments(self) -> int:
        return int(self.table.stats()["fragment_stats"]["num_fragments"])


class Table(Rows):
    """The rows of an index on this machine; `write` holds the writer's lock until it is closed."""

    def __init__(self, folder: Path, write: bool = False, waiting: Callable[[], None] | None = None) -> None:
        lancedb = import_lancedb()
        super().__init__(folder, None, write)
        self.folder = folder
        self.stack = ExitStack()
        self._synced: set[str] = set()
        try:
            if write:
                self.stack.enter_context(only_one(folder, waiting))
            with explained(folder, "cannot be read as an index"):
                self.table = lancedb.connect(str(folder)).open_table(NAME)
            self.killed = write and (folder / WRITING).exists()
            if write:
                self._synced = set(self._files())
                if self.killed:
                    self.clean()
                write_text(folder / WRITING, "a writer is at work, or was killed\n")
        except BaseException:
            self.stack.close()
            raise

    @staticmethod
    def create(folder: Path, columns: pa.Schema) -> None:
        """A new table without rows. The lock must be held."""
        lancedb = import_lancedb()
        with explained(folder, "cannot be written"):
            table = lancedb.connect(str(folder)).create_table(NAME, schema=columns)
            table.set_unenforced_primary_key("id")

    def close(self) -> None:
        if self.write:
            (self.folder / WRITING).unlink(missing_ok=True)
            self.write = False
        self.stack.close()

    def abandon(self) -> None:
        """Let go without saying that all went well: the next writer looks for what was left."""
        self.write = False
        self.stack.close()

    def clean(self) -> None:
        """Remove what a killed writer left, which no version names. The lock is held, so nobody else is writing it."""
        self.compact()

    def sync(self) -> None:
        """Force what was committed to the disk: Lance itself leaves that to the system."""
        folders = set()
        for path in self._files():
            if path not in self._synced:
                self._synced.add(path)
                folders.add(os.path.dirname(path))
                _fsync(path)
        for folder in folders:
            _fsync(folder)

    def _files(self) -> Iterator[str]:
        for place, _, names in os.walk(self.folder / f"{NAME}.lance"):
            yield from (os.path.join(place, name) for name in names if not name.endswith(".json"))


def refusal(told: str) -> str:
    """Why Lance cannot read a filter, in its own words where they are plain, without places in its source."""
    told = SOURCE.sub("", next(iter(told.strip().splitlines()), ""))
    compared = re.search(r"Received literal \w+\((.*)\) and could not convert to literal of type '(\w+)", told)
    if compared is not None:
        value, kind = compared[1].replace('"', "'"), compared[2]
        kinds = {
            "List": "lists: array_has(labels, 'dog') looks into one",
            "Timestamp": "times: date '2024-05-01' is one",
        }
        return f"{value} is compared with a column of {kinds.get(kind, 'texts' if kind == 'Utf8' else 'numbers')}"
    marks = "sql parser error: |Schema error: |Error during planning: |Arrow error: |cause by |Invalid input, "
    return re.sub(rf".*({marks})", "", told).rstrip(" )")[:200]


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
