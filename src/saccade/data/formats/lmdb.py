"""LMDB feature files whose values are the bytes of a .npz or .npy: ImageCaptioning.pytorch's, and UNITER's compressed.

MMF, ViLBERT and VOLTA keep pickled dictionaries instead. Those are not read; the sentence says so.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.formats.arrays import PICKLE, ArrayPictures, Arrays, only_array, read_arrays
from saccade.data.formats.npz import boxes_beside

MAGIC = 0xBEEFC0DE  # the fifth word of a database, in the machine's byte order
RESERVED = re.compile(rb"keys|__\w+__")  # lists of keys and notes on the encoding, not pictures
ENDING = re.compile(r"\.np[yz]$")


class LmdbPictures(ArrayPictures):
    """The pictures of a database, by key, in the order of the database."""

    def __reduce__(self) -> Any:  # a loader's worker process opens the database itself
        return type(self), (self.path, self.sizes)

    @property
    def _database(self) -> Any:
        return _open(self.path.resolve())

    @cached_property
    def _box_path(self) -> Path | None:
        beside = boxes_beside(self.path)
        return beside.resolve() if beside is not None and beside.exists() else None

    @cached_property
    def _keys(self) -> tuple[bytes, ...]:
        with self._database.begin() as transaction, transaction.cursor() as cursor:
            keys = tuple(key for key in map(bytes, cursor.iternext(values=False)) if not RESERVED.fullmatch(key))
        if not keys:
            raise SaccadeError(f"{self.path} is empty: one key a picture was expected")
        return keys

    @cached_property
    def ids(self) -> Sequence[str]:
        try:
            ids = tuple(ENDING.sub("", key.decode("utf-8")) for key in self._keys)
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{self.path}: a key is not UTF-8 text, a picture's id was expected") from error
        if len(set(ids)) != len(ids):
            raise SaccadeError(f"{self.path}: two keys name the same picture, one with the ending .npz and one without")
        return ids

    def where(self, index: int) -> str:
        return f'{self.path}: picture "{self.ids[index]}"'

    def arrays(self, index: int) -> Arrays:
        key, where = self._keys[index], self.where(index)
        arrays = dict(_arrays(self._database, key, where))
        if self._box_path is not None:
            boxes = _arrays(_open(self._box_path), key, f"the boxes of {where}")
            arrays["bbox"] = only_array(boxes, where)
        return arrays


def is_lmdb(path: Path) -> bool:
    """A folder with data.mdb, or a file that begins as one."""
    file = path / "data.mdb" if path.is_dir() else path
    return file.is_file() and _head(file, 0)[:1] == (MAGIC,)


def _head(file: Path, offset: int) -> tuple[int, ...]:
    """(magic, page size, last page, transaction) of one of the two heads that a database has; () if it has none."""
    with explain_os_errors(file, "read"), file.open("rb") as stream:
        stream.seek(offset)
        head = stream.read(152)
    if len(head) < 152:
        return ()
    return (
        struct.unpack_from("=I", head, 16) + struct.unpack_from("=I", head, 40) + struct.unpack_from("=QQ", head, 136)
    )


def _is_whole(file: Path) -> bool:
    """Whether all pages are there. LMDB does not look, and the process would die at the first that is not."""
    first = _head(file, 0)
    if first[:1] != (MAGIC,):
        return False
    heads = [head for head in (first, _head(file, first[1])) if head[:1] == (MAGIC,)]
    _, page, last, _ = max(heads, key=lambda head: head[3])
    return file.stat().st_size >= page * (last + 1)


def _arrays(database: Any, key: bytes, where: str) -> Arrays:
    with database.begin() as transaction:
        value = transaction.get(key)
    if value is None:
        raise SaccadeError(f"{where} is missing")
    if value[:1] == b"\x80":  # the first byte of every pickle since 2003, and of no array file
        raise SaccadeError(f"{where} {PICKLE}")
    return read_arrays(value, where)


@lru_cache(maxsize=8)
def _open(path: Path) -> Any:
    """A process may open a database only once, so all sources share it."""
    try:
        import lmdb
    except ImportError:
        raise SaccadeError(f'{path}: LMDB files need lmdb: pip install "saccade[formats]"') from None
    file = path / "data.mdb" if path.is_dir() else path
    if not file.exists():
        raise SaccadeError(f"{file} does not exist")
    if not _is_whole(file):
        raise SaccadeError(f"{path} is cut short or is not an LMDB database")
    try:
        return lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False, readahead=False, create=False)
    except lmdb.Error as error:
        raise SaccadeError(f"{path} cannot be opened as an LMDB database: {error}") from error
