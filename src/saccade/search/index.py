# mypy: disable-error-code="attr-defined"
"""An index: pictures, videos or the regions of a feature store, encoded once by a matcher, to be searched from then on.

A folder of `index.json` (which model, how its codes are kept) and a Lance table with one row a picture
(`search/table.py`). Indexing a folder again touches what changed: a file of the same size and time is taken as it is,
one of another time by its content's hash, and what is gone from the folder goes from the index.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line
import torch
from torch import Tensor

from saccade.core.config import from_dict
from saccade.core.errors import SaccadeError, not_among
from saccade.core.files import only_one, read_json, sweep_lock, write_json
from saccade.core.weights import read_weights, write_weights
from saccade.data.store.manifest import Broken
from saccade.models import shipped_models
from saccade.search.coding import CodeFormat, Codes, Encoded, format_of
from saccade.search.table import GRACE_S, HIDDEN, NAME, Rows, Table, checksum, schema
from saccade.tasks.matching.task import PictureMatcher
from saccade.tasks.predict import load

if TYPE_CHECKING:
    from saccade.search.reading import Encoder

CONTENTS, FORMAT, VERSION = "index.json", "saccade-index", 1
BASIS = "basis.safetensors"  # of the subspace in which codes are kept, where they are
CODE_COLUMNS = ("id", "regions", "codes", "scale", "boxes", "checksum")
MANY_FRAGMENTS = 48  # small files that are made into few after an update
RESERVED = frozenset(schema(1).names)


@dataclass(frozen=True)
class IndexSettings:
    """`index.json`."""

    model: str = ""  # as the user named it
    kept: CodeFormat = field(default_factory=CodeFormat)
    extra: dict[str, str] = field(default_factory=dict)  # columns of the user's own: int, float or text

    def save(self, folder: Path) -> None:
        write_json(folder / CONTENTS, {"format": FORMAT, "version": VERSION, **asdict(self)})

    @staticmethod
    def load(folder: Path) -> IndexSettings:
        path = folder / CONTENTS
        if not path.is_file():
            raise SaccadeError(
                f"{folder} is no index: it has no {CONTENTS} (saccade index PHOTOS -o {folder} makes one)"
            )
        values = read_json(path)
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise SaccadeError(f'{path} is not of an index ("format": "{FORMAT}" was expected)')
        if (version := values.pop("version", None)) != VERSION:
            raise SaccadeError(f"{path}: format version {version!r}, this Saccade reads {VERSION}")
        extra = values.pop("extra", {})
        if not isinstance(extra, dict):
            raise SaccadeError(f'{path}: "extra" is {extra!r}, a mapping of columns to their kinds was expected')
        for name, kind in extra.items():
            check_column(name, kind)
        return replace(from_dict(IndexSettings, values, str(path)), extra=extra)


@dataclass(frozen=True)
class Changes:
    """What an update did."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    unreadable: tuple[Broken, ...] = ()


@dataclass(frozen=True)
class IndexStats:
    pictures: int
    kinds: dict[str, int]
    model: str
    codes: str  # "int8"
    dim: int
    regions: float  # of a picture, on average
    bytes: int  # on disk, older versions included
    bytes_per_picture: float  # of the table
    version: int
    fragments: int
    columns: tuple[str, ...]  # that a filter may name
    evaluation: dict[str, Any] | None = None  # what `saccade index eval INDEX` measured last


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What every search needs of all rows, in the order of their ids; rows may change on disk meanwhile."""

    version: int
    ids: list[str]
    row_ids: np.ndarray
    vectors: Tensor | None  # [picture vector_dim] float16
    metadata: pa.Table

    @cached_property
    def place(self) -> dict[str, int]:
        return {id: n for n, id in enumerate(self.ids)}

    @cached_property
    def region_count(self) -> int:
        return int(self.metadata["regions"].to_numpy().astype(np.int64).sum())

    @cached_property
    def verified(self) -> np.ndarray:
        """Whose checksum was compared."""
        return np.zeros(len(self.ids), dtype=bool)


def check_column(name: str, kind: str) -> None:
    """Raises: SaccadeError if this cannot be a column of the user's own."""
    if not name.isidentifier() or name.startswith("_") or name in RESERVED:
        raise SaccadeError(
            f'"{name}" cannot be a column: a word that is none of {", ".join(sorted(RESERVED))} was expected'
        )
    if kind not in ("int", "float", "text"):
        raise SaccadeError(f'column "{name}" is of the kind {not_among(kind, ("int", "float", "text"))}')


class Index:
    """`Index.create("index", "scan-flickr8k")`, then `update`; or `Index.open("index")` to search it."""

    def __init__(self, folder: Path, settings: IndexSettings, table: Rows) -> None:
        self.folder, self.settings, self.table = folder, settings, table
        self._matcher: PictureMatcher | None = None
        self._snapshot: Snapshot | None = None

    @classmethod
    def create(
        cls,
        folder: Path | str,
        model: str,
        *,
        codes: Codes = "int8",
        extra: Mapping[str, str] | None = None,
        region_dim: int | None = None,
        device: str = "cpu",
        waiting: Callable[[], None] | None = None,
    ) -> Index:
        """A new index, open for writing.

        Raises: SaccadeError if the folder holds anything, there is no such model, or it is no matcher.
        """
        place = Path(folder).absolute()
        if codes not in ("int8", "float16"):
            raise SaccadeError(f"an index keeps codes as {not_among(codes, ('int8', 'float16'))}")
        for name, kind in (extra or {}).items():
            check_column(name, kind)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise SaccadeError(f"{folder} is in the way: a new index needs a folder that is empty or not there")
        matcher = load(model, device, kind=PictureMatcher)
        name = str(Path(model).absolute()) if Path(model).exists() else str(model)
        kept, basis = format_of(matcher, codes, region_dim)
        settings = IndexSettings(name, kept, dict(extra or {}))
        with only_one(place, waiting):
            place.mkdir(parents=True, exist_ok=True)
            if not (place / CONTENTS).exists():
                Table.create(place, schema(settings.kept.vector_dim, settings.extra))
                if basis is not None:
                    write_weights(place / BASIS, {"basis": basis.cpu()})
                settings.save(place)  # last: a folder with it has a table
        found = cls.open(place, write=True, waiting=waiting)
        found._matcher = matcher
        return found

    @classmethod
    def open(cls, folder: Path | str, *, write: bool = False, waiting: Callable[[], None] | None = None) -> Index:
        """An index as it is now. `write` takes the writer's lock: another writer is waited for, after `waiting` was
        called, which may raise instead.

        Raises: SaccadeError if there is no index, or it is damaged.
        """
        place = Path(folder).absolute()
        settings = IndexSettings.load(place)
        check_tree(place)
        if not write and os.access(place.parent, os.W_OK):
            sweep_lock(place)
        found = cls(place, settings, Table(place, write, waiting))
        try:
            check_schema(found)
        except BaseException:
            found.close()
            raise
        return found

    def __enter__(self) -> Index:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.table)

    def close(self) -> None:
        self.table.close()

    @property
    def is_own(self) -> bool:
        return is_owned(self.folder)

    def matcher(self, device: str = "cpu") -> PictureMatcher:
        """The model it was made with. Raises: SaccadeError if another user's index names one outside the package."""
        if self._matcher is None:
            model = self.settings.model
            if not self.is_own and model not in shipped_models():
                raise SaccadeError(
                    f"{self.folder} is another user's and names the model {model}: give --model yourself"
                )
            self._matcher = load(model, device, kind=PictureMatcher)
        return self._matcher

    @cached_property
    def basis(self) -> Tensor | None:
        """Of the subspace in which codes are kept. Raises: SaccadeError if it is missing or damaged."""
        if not self.settings.kept.reduced:
            return None
        basis = read_weights(self.folder / BASIS).get("basis")
        if (
            basis is None
            or basis.ndim != 2
            or basis.shape[1] + 1 != self.settings.kept.dim
            or not bool(basis.isfinite().all())
        ):
            raise SaccadeError(f"{self.folder / BASIS} is damaged, or not of this index")
        return basis.float()

    def use(self, matcher: PictureMatcher) -> None:
        self._matcher = matcher

    # Reading

    def snapshot(self) -> Snapshot:
        """The ids, vectors and metadata of all rows, read once for each version."""
        if self._snapshot is None or self._snapshot.version != self.table.version:
            metadata = self.metadata_columns
            vectors = ["vector"] if self.settings.kept.vector_dim else []
            found = self.table.columns([*metadata, *vectors]).combine_chunks()
            ids = np.asarray(found["id"].to_pylist(), dtype=object)
            order = np.argsort(ids, kind="stable") if len(ids) else np.zeros(0, np.int64)
            table = found.select(metadata).take(order)
            whole = None
            if vectors:
                numbers = np.zeros((0, self.settings.kept.vector_dim), np.float16)
                if len(ids):
                    numbers = found["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
                    numbers = numbers.reshape(len(ids), -1)[order]
                whole = torch.from_numpy(np.ascontiguousarray(numbers))
            row_ids = found["_rowid"].to_numpy().astype(np.int64)[order]
            self._snapshot = Snapshot(self.table.version, ids[order].tolist(), row_ids, whole, table)
        return self._snapshot

    def refresh(self) -> bool:
        """Go to the newest version on disk; whether there was one."""
        return self.table.refresh()

    @cached_property
    def metadata_columns(self) -> list[str]:
        return [name for name in self.table.table.schema.names if name not in HIDDEN]

    @property
    def column_kinds(self) -> dict[str, str]:
        """What the values of each column are: text, number, time or list (of texts)."""
        kinds = {"string": "text", "timestamp[s]": "time", "list<item: string>": "list"}
        types = self.table.table.schema
        return {name: kinds.get(str(types.field(name).type), "number") for name in self.metadata_columns}

    def rows(self, ids: Sequence[str], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Some columns of pictures, in the order asked for. Raises: SaccadeError if one is not there."""
        names = list(columns) if columns is not None else self.metadata_columns
        for name in names:
            if name not in self.table.table.schema.names:
                raise SaccadeError(f"an index has no column {not_among(name, self.metadata_columns)}")
        snapshot = self.snapshot()
        found = self.table.take(snapshot.row_ids[[self._place(id) for id in ids]], names)
        return list(found.select(names).to_pylist())

    def thumbnail(self, id: str) -> bytes:
        """A small JPEG. Raises: SaccadeError if the picture is not there, or has none."""
        (row,) = self.rows([id], ["thumbnail", "thumbnail_checksum"])
        if not row["thumbnail"]:
            raise SaccadeError(f'"{id}" has no thumbnail: its regions came without pixels')
        if checksum(id, row["thumbnail"], 0, b"", b"") != row["thumbnail_checksum"]:
            raise SaccadeError(f'the thumbnail of "{id}" is damaged')
        return bytes(row["thumbnail"])

    def facets(self, column: str, most: int = 100) -> dict[Any, int]:
        """How many pictures have each value of a column, the most frequent first."""
        if column not in self.metadata_columns:
            raise SaccadeError(f"an index has no column {not_among(column, self.metadata_columns)}")
        values = self.snapshot().metadata[column].to_pylist()
        if column == "labels":
            values = [label for own in values for label in own or ()]
        return dict(Counter(value for value in values if value is not None).most_common(most))

    def _place(self, id: str) -> int:
        place = self.snapshot().place.get(id)
        if place is None:
            raise SaccadeError(f'"{id}" is not in the index')
        return place

    def stats(self) -> IndexStats:
        snapshot, kept = self.snapshot(), self.settings.kept
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        table = sum(path.stat().st_size for path in (self.folder / f"{NAME}.lance").rglob("*") if path.is_file())
        regions = snapshot.metadata["regions"].to_numpy()
        from saccade.search.measure import read_evaluation

        return IndexStats(
            len(snapshot.ids),
            dict(Counter(snapshot.metadata["kind"].to_pylist())),
            self.settings.model,
            kept.codes,
            kept.dim,
            float(regions.mean()) if len(regions) else 0.0,
            size,
            table / max(1, len(snapshot.ids)),
            self.table.version,
            self.table.fragments(),
            tuple(self.metadata_columns),
            read_evaluation(self.folder),
        )

    def check(self, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Read every row and compare it with its checksum: a sentence for each that is damaged."""
        kept, seen, problems = self.settings.kept, Counter[str](), list[str]()
        vector = ["vector"] if kept.vector_dim else []
        total, done = len(self), 0
        rows = self.table.batches([*CODE_COLUMNS, "thumbnail", "thumbnail_checksum", *vector])
        try:
            for batch in rows:
                for row in batch.to_pylist():
                    seen[row["id"]] += 1
                    numbers = np.asarray(row["vector"], np.float16).tobytes() if vector else b""
                    if (reason := damage(row, kept, numbers)) is not None:
                        problems.append(f'"{row["id"]}": {reason}')
                    elif (
                        row["thumbnail"]
                        and checksum(row["id"], row["thumbnail"], 0, b"", b"") != row["thumbnail_checksum"]
                    ):
                        problems.append(f'"{row["id"]}": its thumbnail is damaged')
                done += len(batch)
                if progress is not None:
                    progress(done, total)
        except SaccadeError as error:
            problems.append(str(error))
        problems += [f'"{id}" is there {count} times' for id, count in seen.items() if count > 1]
        return problems

    # Writing

    def update(
        self,
        sources: Path | str | Sequence[Path | str],
        *,
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
        progress: Callable[[int, int], None] | None = None,
        workers: int | None = None,
        passed_over: Counter[str] | None = None,
        encoder: Encoder | None = None,
    ) -> Changes:
        """Take in folders, files and lists of pictures or videos, or feature stores: what is new, changed or gone.

        `metadata`: columns of the user's own, by id. `encoder` reads the files elsewhere (`search/sharded.py`). What
        was committed stays if this is stopped, and the same call goes on.

        Raises: SaccadeError if a source is missing, or the index is not open for writing.
        """
        from saccade.search.reading import update

        self._check_writing()
        listed = [sources] if isinstance(sources, str | Path) else list(sources)
        done = update(self, [Path(place) for place in listed], metadata or {}, progress, workers, passed_over, encoder)
        if self.table.fragments() > MANY_FRAGMENTS:
            self.table.compact()
        return done

    def put(self, rows: Sequence[Mapping[str, Any]], codes: Sequence[Encoded], replaces: bool = True) -> None:
        """Rows (at least their `id`) with their codes, committed and on disk when this returns."""
        self._check_writing()
        self.table.put(row_table(self.settings, rows, codes), replaces)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove pictures from the index (the files stay); how many were there."""
        self._check_writing()
        known = self.snapshot().place
        there = [id for id in dict.fromkeys(ids) if id in known]
        if there:
            self.table.delete(there)
        return len(there)

    def compact(self, grace_s: float = GRACE_S) -> None:
        """Few large files of many small ones; older versions go once they are `grace_s` old, since a reader that opened
        one may still be at work."""
        self._check_writing()
        if grace_s < 0:
            raise SaccadeError(f"a grace period of {grace_s:g} s makes no sense")
        self.table.compact(grace_s)

    def _check_writing(self) -> None:
        if not self.table.write:
            raise SaccadeError(f"{self.folder} was opened to be read: open it with write=True")


def check_main() -> None:
    """`Index.check` of the folder named on the command line: prints how many rows there are, and what is wrong."""
    try:
        with Index.open(sys.argv[1]) as index:
            found = index.check()
            print(json.dumps([len(index), found]))
    except SaccadeError as error:
        print(json.dumps([0, [str(error)]]))


def damage(row: Mapping[str, Any], kept: CodeFormat, vector: Any) -> str | None:
    """What is wrong with a row, if anything."""
    codes, boxes, regions = row["codes"], row["boxes"], row["regions"]
    if regions < 1 or len(codes) != regions * kept.dim * kept.itemsize or len(boxes) != regions * 16:
        return f"{len(codes):,} bytes of codes and {len(boxes)} of boxes do not make {regions} regions"
    if checksum(row["id"], codes, row["scale"], boxes, vector) != row["checksum"]:
        return "its codes are damaged: the checksum differs"
    return None


def row_table(settings: IndexSettings, rows: Sequence[Mapping[str, Any]], codes: Sequence[Encoded]) -> pa.Table:
    """Rows as Lance takes them."""
    kept, full = settings.kept, []
    for row, code in zip(rows, codes, strict=True):
        if code.codes.shape[1:] != (kept.dim,) or code.codes.itemsize != kept.itemsize:
            raise SaccadeError(f'"{row["id"]}": its codes are not of this index')
        raw, boxes = code.codes.tobytes(), code.boxes.tobytes()
        thumbnail = row.get("thumbnail")
        vector = b"" if code.vector is None else code.vector.tobytes()
        full.append(
            {
                **row,
                "regions": len(code.codes),
                "codes": raw,
                "scale": code.scale,
                "boxes": boxes,
                "checksum": checksum(row["id"], raw, code.scale, boxes, vector),
                "thumbnail_checksum": checksum(row["id"], thumbnail or b"", 0, b"", b""),
            }
        )
    columns = schema(kept.vector_dim, settings.extra)
    arrays: list[Any] = []
    for column in columns:
        if column.name == "vector":
            numbers = np.concatenate([code.vector for code in codes if code.vector is not None])
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(numbers, pa.float16()), kept.vector_dim))
        else:
            arrays.append(pa.array([row.get(column.name) for row in full], column.type))
    return pa.Table.from_arrays(arrays, schema=columns)


def is_owned(folder: Path) -> bool:
    """Whether only this user (or root) could have written an index: then the files and the model that it names are
    opened, and else nothing outside its folder."""
    if not hasattr(os, "geteuid"):
        return True
    return all(
        path.stat().st_uid in (os.geteuid(), 0) and not path.stat().st_mode & 0o002
        for path in (folder, folder / CONTENTS, folder / f"{NAME}.lance")
    )


def check_tree(folder: Path) -> None:
    """Raises: SaccadeError if a link leads out of the folder: an index reads nothing but itself."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(path := os.path.join(place, name)):
                raise SaccadeError(f"{path} is a link: an index holds its own files")


def check_schema(index: Index) -> None:
    wanted = schema(index.settings.kept.vector_dim, index.settings.extra)
    there = index.table.table.schema
    for column in wanted:
        if column.name not in there.names or there.field(column.name).type != column.type:
            raise SaccadeError(f'{index.folder}: its table has no column "{column.name}" of the type {column.type}')
