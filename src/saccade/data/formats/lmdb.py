"""LMDB feature files: a database whose values are the bytes of a .npz or .npy, as ImageCaptioning.pytorch writes them
and UNITER, compressed. MMF, ViLBERT and VOLTA keep pickled dictionaries instead, which are refused.

LMDB's own library believes every number in a file and takes the process with it when one is wrong, so the tree is
walked here. A database is a file of pages. Two pages at the start say where the root is, of which the one with the
later transaction counts. A page of the tree has a head of 16 bytes (flags, and where its list of places ends) and that
list; at each place is a key, and with it the number of a page further down, or a value, or the number of the first of
the pages that hold the value. All numbers are little-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from saccade.core.arrays import PICKLE
from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.data.formats.arrays import ArrayPictures, Arrays, only_array, read_arrays

MAGIC = 0xBEEFC0DE
HEAD = 16  # bytes at the start of a page
BRANCH, LEAF = 1, 2  # flags of pages
ELSEWHERE, OTHER_VALUES = 1, 6  # flags of keys: the value has pages of its own; it is another tree, or several values
NO_PAGE = (1 << 64) - 1
MAX_DEPTH = 32  # LMDB's own
RESERVED_KEYS = re.compile(rb"keys|__\w+__")  # lists of keys and notes on the encoding, not pictures
ARRAY_ENDING = re.compile(r"\.np[yz]$")


class LmdbPictures(ArrayPictures):
    """The pictures of a database, by key, in the order of the database."""

    @cached_property
    def _places(self) -> dict[bytes, tuple[int, int]]:
        found = places_of(self.path)
        return {key: place for key, place in found.items() if not RESERVED_KEYS.fullmatch(key)}

    @cached_property
    def _box_places(self) -> dict[bytes, tuple[int, int]]:
        return {} if self.box_path is None else places_of(self.box_path)

    @cached_property
    def _keys(self) -> tuple[bytes, ...]:
        if not self._places:
            raise SaccadeError(f"{self.path} is empty: one key a picture was expected")
        return tuple(self._places)

    @cached_property
    def ids(self) -> Sequence[str]:
        try:
            ids = tuple(ARRAY_ENDING.sub("", key.decode("utf-8")) for key in self._keys)
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{self.path}: a key is not UTF-8 text, a picture's id was expected") from error
        if len(set(ids)) != len(ids):
            raise SaccadeError(f"{self.path}: two keys name the same picture, one with the ending .npz and one without")
        return ids

    def arrays(self, index: int) -> Arrays:
        key, where = self._keys[index], self.where(index)
        arrays = dict(_value(self.path, self._places[key], where))
        if self.box_path is not None:
            if key not in self._box_places:
                raise SaccadeError(f"the boxes of {where} is missing")
            boxes = _value(self.box_path, self._box_places[key], f"the boxes of {where}")
            arrays["bbox"] = only_array(boxes, where)
        return arrays


def is_lmdb(path: Path) -> bool:
    """A folder with data.mdb, or a file that begins as one."""
    file = _file(path)
    return file.is_file() and _meta(_read(file, 0, META.size + HEAD)) is not None


def places_of(path: Path) -> dict[bytes, tuple[int, int]]:
    """Where in the file each key's value lies: (first byte, bytes). Only pages of the tree are read, no value.

    Raises: SaccadeError if the file is missing, cut short or damaged.
    """
    file = _file(path)
    if not file.exists():
        raise SaccadeError(f"{file} does not exist")
    try:
        return dict(_Tree(file).entries())
    except (struct.error, ValueError) as error:
        raise SaccadeError(f"{path} is cut short or is not an LMDB database") from error


META = struct.Struct("<I20xI84xQQQ")  # magic, page size, root, last page, transaction


class _Meta(NamedTuple):
    page_size: int
    root: int
    last_page: int
    transaction: int


def _meta(page: bytes) -> _Meta | None:
    if len(page) < HEAD + META.size:
        return None
    magic, size, root, last, transaction = META.unpack_from(page, HEAD)
    return _Meta(size, root, last, transaction) if magic == MAGIC else None


class _Tree:
    """Raises: ValueError or struct.error wherever a number leads out of the file, or to a page that was seen before."""

    def __init__(self, file: Path) -> None:
        first = _meta(_read(file, 0, HEAD + META.size))
        if first is None or not 256 <= first.page_size <= 1 << 16:
            raise ValueError("no head")
        metas = (first, _meta(_read(file, first.page_size, HEAD + META.size)))
        self.meta = max((meta for meta in metas if meta is not None), key=lambda meta: meta.transaction)
        self.file, self.size, self.bytes = file, first.page_size, file.stat().st_size
        if self.bytes < self.size * (self.meta.last_page + 1):
            raise ValueError("cut short")

    def entries(self) -> Iterator[tuple[bytes, tuple[int, int]]]:
        """(key, (first byte, bytes)) in the order of the tree."""
        seen: set[int] = set()
        waiting = [] if self.meta.root == NO_PAGE else [(self.meta.root, 0)]
        with explain_os_errors(self.file, "read"), self.file.open("rb") as stream:
            while waiting:
                number, depth = waiting.pop()
                if number in seen or number > self.meta.last_page or depth > MAX_DEPTH:
                    raise ValueError("a page that cannot be there")
                seen.add(number)
                stream.seek(number * self.size)
                page = stream.read(self.size)
                _, _, flags, end = struct.unpack_from("<QHHH", page)
                if not flags & (BRANCH | LEAF) or not HEAD <= end <= self.size:
                    raise ValueError("no page of the tree")
                nodes = struct.unpack_from(f"<{(end - HEAD) // 2}H", page, HEAD)
                if flags & BRANCH:
                    waiting += [(self._child(page, node), depth + 1) for node in reversed(nodes)]
                else:
                    yield from (self._entry(page, number, node) for node in nodes)

    def _child(self, page: bytes, node: int) -> int:
        low, middle, high = struct.unpack_from("<HHH", page, node)
        return int(low | middle << 16 | high << 32)

    def _entry(self, page: bytes, number: int, node: int) -> tuple[bytes, tuple[int, int]]:
        low, high, flags, key_size = struct.unpack_from("<HHHH", page, node)
        size, data = low | high << 16, node + 8 + key_size
        key = page[node + 8 : data]
        if flags & OTHER_VALUES or len(key) != key_size:
            raise ValueError("a key without a value of its own")
        if flags & ELSEWHERE:
            (first,) = struct.unpack_from("<Q", page, data)
            place = first * self.size + HEAD
        else:
            place = number * self.size + data
        if place + size > self.bytes or (not flags & ELSEWHERE and data + size > self.size):
            raise ValueError("a value outside the file")
        return key, (place, size)


def _file(path: Path) -> Path:
    return path / "data.mdb" if path.is_dir() else path


def _read(file: Path, first: int, size: int) -> bytes:
    with explain_os_errors(file, "read"), file.open("rb") as stream:
        stream.seek(first)
        return stream.read(size)


def _value(path: Path, place: tuple[int, int], where: str) -> Arrays:
    value = _read(_file(path), *place)
    if value[:1] == b"\x80":  # the first byte of every pickle since 2003, and of no array file
        raise SaccadeError(f"{where} {PICKLE}")
    return read_arrays(value, where)
