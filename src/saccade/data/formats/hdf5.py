# mypy: disable-error-code="attr-defined,no-untyped-call"
"""HDF5 feature files, in the three layouts that are about.

Tables (bottom-up-attention-vqa, VisDial): `image_features` [picture, region, dim], or [region, dim] with `pos_boxes`
[picture, 2] saying where each picture begins and ends; `image_bb` and `spatial_features` hold the boxes.
One array a picture (ImageCaptioning.pytorch): /391895 [region, dim]. One group a picture (VOLTA): /391895/features, …
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from saccade.core.arrays import MAX_ARRAY_BYTES
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import max_unpacked, read_json, read_text
from saccade.data.formats.arrays import KNOWN, PIXEL_BOXES, SCORES, UNIT_BOXES, ArrayPictures, Arrays
from saccade.data.formats.regions import NO_SIZES, Sizes
from saccade.data.text_files import first_bytes

MAGIC = b"\x89HDF\r\n\x1a\n"
TABLES = ("image_features", "features")
IDS = ("image_id", "image_ids", "ids")
Given = ParamSpec("Given")
Result = TypeVar("Result")


def is_hdf5(path: Path) -> bool:
    return path.is_file() and first_bytes(path, len(MAGIC)) == MAGIC


def open_hdf5(path: Path | str, sizes: Sizes = NO_SIZES, ids: Path | None = None) -> ArrayPictures:
    """Whichever layout it is. `ids` is a list of picture ids for tables that keep none, or keep them in a pickle."""
    path = Path(path)
    with _open(path) as file:
        tables = _has_tables(path, file)
    return Hdf5Tables(path, sizes, ids) if tables else Hdf5Pictures(path, sizes)


def _named_damage(read: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function of a file, or of something with a path, whose failure says that the file is damaged."""

    def guarded(*given: Given.args, **options: Given.kwargs) -> Result:
        try:
            return read(*given, **options)
        except SaccadeError:
            raise
        except Exception as error:  # h5py raises some ten kinds
            raise SaccadeError(f"{getattr(given[0], 'path', given[0])} cannot be read, the file is damaged") from error

    return guarded


@_named_damage
def _has_tables(path: Path, file: Any) -> bool:
    return any(_is_array(file.get(name)) for name in TABLES)


def _bounded(dataset: Any, rows: Any, path: Path) -> Any:
    """The data set. Raises: SaccadeError if some of its rows would unpack to more than a file of that size may hold."""
    shape = dataset.shape[1:] if isinstance(rows, int) else dataset.shape
    if isinstance(rows, slice):
        shape = (rows.stop - rows.start, *shape[1:])
    size = max(math.prod(shape), math.prod(dataset.chunks or ())) * dataset.dtype.itemsize
    if size > min(MAX_ARRAY_BYTES, max_unpacked(path.stat().st_size)):
        raise SaccadeError(f"{path}: {dataset.name} would unpack to {size:,} bytes, too many for a file of its size")
    return dataset


class _Hdf5(ArrayPictures):
    """The file is opened when first needed, in each process by itself."""

    @cached_property
    def _file(self) -> Any:
        return _open(self.path)

    def _read(self, dataset: Any, rows: Any, where: str) -> np.ndarray:
        """Some rows of a table of numbers; types that hold Python objects are never read."""
        if dataset.dtype.kind not in "fiu":
            raise SaccadeError(f"{where}: {dataset.name} holds values of type {dataset.dtype}, numbers were expected")
        return np.asarray(_bounded(dataset, rows, self.path)[rows])


class Hdf5Pictures(_Hdf5):
    """One array, or one group of arrays, a picture."""

    @cached_property
    @_named_damage
    def ids(self) -> Sequence[str]:
        names = tuple(self._file)
        if not names:
            raise SaccadeError(f"{self.path} is empty: one array or group a picture was expected")
        return names

    @cached_property
    def _box_file(self) -> Any:
        return None if self.box_path is None else _open(self.box_path)

    @_named_damage
    def arrays(self, index: int) -> Arrays:
        id, where = self.ids[index], self.where(index)
        found = self._file.get(id)
        if not _is_array(found):
            fields = {name: found.get(name) for name in KNOWN if hasattr(found, "get") and name in found}
            return {name: self._read(value, (), where) for name, value in fields.items() if _is_array(value)}
        arrays = {"features": self._read(found, (), where)}
        if self._box_file is not None:
            boxes = self._box_file.get(id)
            if not _is_array(boxes):
                raise SaccadeError(f"{self.box_path} has no boxes of the picture {id}")
            arrays["bbox"] = self._read(boxes, (), where)
        return arrays


class Hdf5Tables(_Hdf5):
    """All pictures in one table, by row."""

    def __init__(self, path: Path | str, sizes: Sizes = NO_SIZES, ids: Path | None = None) -> None:
        super().__init__(path, sizes)
        self.id_file = ids

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.sizes, self.id_file)

    @cached_property
    @_named_damage
    def _tables(self) -> dict[str, Any]:
        """The tables by name, their lengths checked against each other."""
        names = dict.fromkeys([*TABLES, *PIXEL_BOXES, *UNIT_BOXES, *SCORES, "pos_boxes"])
        tables = {name: self._file[name] for name in names if _is_array(self._file.get(name))}
        features = tables[next(name for name in TABLES if name in tables)]
        ends = tables.get("pos_boxes")
        axes = "[regions, dim]" if ends is not None else "[pictures, regions, dim]"
        if features.ndim != axes.count(",") + 1 or 0 in features.shape:
            raise SaccadeError(f"{self.path}: {features.name} has shape {list(features.shape)}, {axes} was expected")
        if ends is not None and (ends.ndim != 2 or ends.shape[1] != 2):
            raise SaccadeError(f"{self.path}: pos_boxes has shape {list(ends.shape)}, [pictures, 2] was expected")
        for name, table in tables.items():
            if name != "pos_boxes" and (not table.ndim or len(table) != len(features)):
                raise SaccadeError(f"{self.path}: {name} has shape {list(table.shape)} beside {list(features.shape)}")
        return tables

    @cached_property
    def _ends(self) -> np.ndarray | None:
        """[picture, 2]: the first row of each picture and the one after its last, where pictures differ in length."""
        if "pos_boxes" not in self._tables:
            return None
        ends = self._read(self._tables["pos_boxes"], (), str(self.path)).astype(np.int64)
        rows = len(next(iter(self._tables.values())))
        if len(ends) and not ((ends[:, 0] >= 0) & (ends[:, 0] <= ends[:, 1]) & (ends[:, 1] <= rows)).all():
            raise SaccadeError(f"{self.path}: pos_boxes points out of the {rows} rows of the other tables")
        return ends

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(self._named[0])

    @cached_property
    @_named_damage
    def _named(self) -> tuple[list[str], list[int]]:
        """(ids, their rows): from the file itself, or from a list beside it."""
        count = len(next(iter(self._tables.values()))) if self._ends is None else len(self._ends)
        inside = next((self._file[name] for name in IDS if _is_array(self._file.get(name))), None)
        if self.id_file is None and inside is not None:
            _bounded(inside, (), self.path)
            values = np.asarray(inside.asstr()[()] if inside.dtype.kind == "O" else inside[()])
            ids, rows = [_text(v) for v in values.reshape(-1)], list(range(values.size))
            source: object = f"{self.path}: {inside.name}"
        else:
            source = self.id_file or self._list_beside()
            ids, rows = read_id_list(Path(str(source)))
        if len(set(ids)) != len(ids):
            raise SaccadeError(f"{source}: the same id occurs twice")
        if rows and (min(rows) < 0 or max(rows) >= count or (rows == list(range(len(rows))) and len(rows) != count)):
            raise SaccadeError(f"{source}: {len(ids)} ids for the {count} pictures of {self.path}")
        return ids, rows

    def _list_beside(self) -> Path:
        names = [f"{self.path.stem}{end}" for end in ("_imgid2idx.json", "_ids.json", "_ids.txt")]
        found = next((p for name in names if (p := self.path.with_name(name)).exists()), None)
        if found is None:
            pickled = self.path.with_name(f"{self.path.stem}_imgid2idx.pkl")
            why = f" ({pickled.name} is a pickle, which is not read)" if pickled.exists() else ""
            raise SaccadeError(
                f"{self.path} does not name its pictures{why}: put the ids as {names[0]} or {names[2]} beside it, "
                "or give --ids FILE"
            )
        return found

    @_named_damage
    def arrays(self, index: int) -> Arrays:
        row, where = self._named[1][index], self.where(index)
        part: Any = row if self._ends is None else slice(*map(int, self._ends[row]))
        return {name: self._read(t, part, where) for name, t in self._tables.items() if name != "pos_boxes"}


def read_id_list(path: Path) -> tuple[list[str], list[int]]:
    """(ids, rows) from a JSON list in the order of the rows, a JSON table {id: row}, or text with one id a line."""
    if path.suffix in (".pkl", ".pickle"):
        raise SaccadeError(f"{path} is a pickle, which is not read: docs/data/formats.md says how to turn it into JSON")
    if path.suffix != ".json":
        ids = [line.strip() for line in read_text(path).split("\n") if line.strip()]
        return ids, list(range(len(ids)))
    value = read_json(path)
    if isinstance(value, Mapping) and value and all(type(row) is int for row in value.values()):
        pairs = sorted(value.items(), key=lambda pair: pair[1])
        return [str(id) for id, _ in pairs], [row for _, row in pairs]
    if isinstance(value, list) and value and all(type(id) in (str, int) for id in value):
        return [str(id) for id in value], list(range(len(value)))
    raise SaccadeError(f"{path}: a list of ids or a table of ids and row numbers was expected")


def _open(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise SaccadeError(f'{path}: HDF5 files need h5py: pip install "saccade[formats]"') from None
    if not path.exists():
        raise SaccadeError(f"{path} does not exist")
    try:
        with explain_os_errors(path, "read"), path.open("rb") as file:
            file.read(1)
        return h5py.File(path, "r")
    except OSError as error:
        raise SaccadeError(f"{path} is cut short or is not an HDF5 file") from error


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    return str(value)
