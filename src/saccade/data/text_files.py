"""Text files of data sets, plain or gzipped: lines, tables, and JSON, whole, by lines or item by item.

A fault names the file and the line or field. A `JsonEntry` is a JSON mapping whose fields come in the type expected. Of
a file read by `read_items` (the lists of COCO and Visual Genome, gigabytes) only the text around one item is in memory.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np
from jaxtyping import Float32

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import Bounded

CHUNK = 1 << 20  # characters read at a time
MAX_LINE_BYTES = 1 << 26  # a gzipped bomb stops here
MAX_ITEM_CHARACTERS = 1 << 26
BOX_SLACK = 2.0  # so many pixels outside the picture are somebody's rounding
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class JsonEntry:
    """`where` says in sentences which file and which place in it: "annotations.json, images[3]"."""

    values: dict[str, Any]
    where: str

    @classmethod
    def of(cls, value: Any, where: str) -> JsonEntry:
        if not isinstance(value, dict):
            raise SaccadeError(f"{where} is {_short(value)}, a mapping was expected")
        return cls(value, where)

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str) -> str:
        return as_text(self.values.get(key), f'{self.where}: "{key}"')

    def whole(self, key: str, least: int = 0) -> int:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 62:
            self._refuse(key, f"a whole number of at least {least}" if least else "a whole number")
        return value

    def number(self, key: str) -> float:
        return as_number(self.values.get(key), f'{self.where}: "{key}"')

    def list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if not isinstance(value, list):
            self._refuse(key, "a list")
        return value

    def numbers(self, key: str, names: tuple[str, ...]) -> tuple[float, ...]:
        """As many numbers as there are names for them: ("x", "y", "width", "height")."""
        values = self.list(key)
        if len(values) != len(names):
            counted = f'{self.where}: "{key}" has {len(values)} numbers'
            raise SaccadeError(f"{counted}, [{', '.join(names)}] was expected")
        return tuple(as_number(v, f"{self.where}: {key}[{n}]") for n, v in enumerate(values))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(as_text(v, f"{self.where}: {key}[{n}]") for n, v in enumerate(self.list(key)))

    def entries(self, key: str) -> Iterator[JsonEntry]:
        return (JsonEntry.of(v, f"{self.where}.{key}[{n}]") for n, v in enumerate(self.list(key)))

    def entry(self, key: str) -> JsonEntry:
        return JsonEntry.of(self.values.get(key), f"{self.where}.{key}")

    def _refuse(self, key: str, expected: str) -> NoReturn:
        raise SaccadeError(f'{self.where}: "{key}" is {_short(self.values.get(key))}, {expected} was expected')


def as_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SaccadeError(f"{where} is {_short(value)}, text was expected")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise SaccadeError(f"{where} holds half a character (a lone surrogate)")
    return value


def as_number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15 or math.isnan(value):
        raise SaccadeError(f"{where} is {_short(value)}, a number was expected")
    return float(value)


def pixel_box(
    corners: tuple[float, float, float, float], width: int, height: int, where: str
) -> Float32[np.ndarray, " 4"]:
    """x1, y1, x2, y2 in pixels as parts of the picture; what is less than `BOX_SLACK` pixels outside is cut off.

    Raises: SaccadeError if the box leaves the picture or ends before it begins.
    """
    x1, y1, x2, y2 = corners
    if min(x1, y1) < -BOX_SLACK or x2 > width + BOX_SLACK or y2 > height + BOX_SLACK:
        raise SaccadeError(f"{where}: the box {numbers_text(corners)} leaves the picture of {width} × {height} pixels")
    if x2 < x1 or y2 < y1:
        raise SaccadeError(f"{where}: the box {numbers_text(corners)} ends before it begins")
    box = np.array([x1 / width, y1 / height, x2 / width, y2 / height], dtype=np.float32)
    return np.clip(box, 0.0, 1.0)


def numbers_text(values: Iterable[float]) -> str:
    return "(" + ", ".join(f"{float(value):g}" for value in values) + ")"


def _short(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if isinstance(value, int) and abs(value) >= 1 << 62:
        return "a number of many digits"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def read_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, value) of a file with one JSON value a line; empty lines are passed over."""
    for number, line in read_lines(path):
        if line.strip():
            yield number, parse_json(line, f"{path}, line {number}")


def read_json_file(path: Path) -> Any:
    """The one JSON value of a file, plain or gzipped."""
    with open_text(path) as file:
        text = file.read()
    return parse_json(text, str(path))


def parse_json(text: str, where: str) -> Any:
    """A JSON value. Raises: SaccadeError if it is none, or holds NaN, endless digits or endless nesting."""
    try:
        return json.loads(text, parse_constant=partial(_refuse_constant, where))
    except json.JSONDecodeError as error:
        raise SaccadeError(f"{where}: not valid JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise SaccadeError(f"{where}: not usable JSON ({str(error).splitlines()[0]})") from error


def _refuse_constant(where: str, constant: str) -> NoReturn:
    raise SaccadeError(f"{where}: {constant} is not a number")


def read_items(path: Path) -> Iterator[tuple[str, int, Any]]:
    """(key, position, item) of every list in a file {"images": [..], "annotations": [..]}; of one plain list, key "".

    Values of other kinds come whole, as position 0.
    """
    with open_text(path) as file:
        yield from _Reader(file, path).items()


class _Reader:
    def __init__(self, file: IO[str], path: Path) -> None:
        self.file, self.path = file, path
        self.text, self.place, self.ended = "", 0, False
        self.last = ""  # what was read before this place
        self.decoder = json.JSONDecoder(parse_constant=partial(_refuse_constant, str(path)))

    def items(self) -> Iterator[tuple[str, int, Any]]:
        first = self._next()
        if first == "[":
            yield from self._list("")
        elif first == "{":
            for _ in self._each("}"):
                key = self._value("a key")
                if not isinstance(key, str):
                    raise SaccadeError(f"{self.path}: a key is {type(key).__name__}, text was expected")
                self._take(":", f"after {key[:40]!r}")
                if self._next() == "[":
                    yield from self._list(key)
                else:
                    yield key, 0, self._value(key)
                self.last = key
        else:
            raise SaccadeError(f"{self.path} is not a JSON list or mapping")
        if self._next():
            raise SaccadeError(f"{self.path} goes on after its end")

    def _list(self, key: str) -> Iterator[tuple[str, int, Any]]:
        for position in self._each("]"):
            yield key, position, self._value(f"{key}[{position}]")

    def _each(self, end: str) -> Iterator[int]:
        """Stop at each item of what begins here; whoever asks reads it before asking for the next."""
        self.place += 1
        if self._next() == end:
            self.place += 1
            return
        position = 0
        yield position
        while self._take("," + end, self.last) != end:
            position += 1
            yield position

    def _take(self, marks: str, where: str) -> str:
        """The next mark, which must be one of these."""
        found = self._next()
        if not found:
            raise SaccadeError(f"{self.path} ends in the middle, after {where}: copy it again")
        if found not in marks:
            self._broken(where, " or ".join(f'"{mark}"' for mark in marks) + " was expected")
        self.place += 1
        return found

    def _value(self, where: str) -> Any:
        """The value at this place. Text that ends too soon may go on in the next chunk, so it is tried again."""
        self.last = where
        self._next()
        size = CHUNK
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.place)
            except json.JSONDecodeError as error:
                if self.ended:
                    self._broken(where, error.msg)
            except (ValueError, RecursionError) as error:
                self._broken(where, str(error).splitlines()[0])
            else:
                if end < len(self.text) or self.ended:  # "12" at the end of a chunk may be the start of "123"
                    self.place = end
                    return value
            if len(self.text) - self.place > MAX_ITEM_CHARACTERS:
                self._broken(where, f"it has more than {MAX_ITEM_CHARACTERS >> 20} million characters or is not JSON")
            self._more(size)
            size *= 2

    def _next(self) -> str:
        """The next mark that is no blank, or nothing at the end of the file."""
        while True:
            match = _BLANK.match(self.text, self.place)
            self.place = match.end() if match else self.place
            if self.place < len(self.text):
                return self.text[self.place]
            if self.ended:
                return ""
            self._more(CHUNK)

    def _more(self, size: int) -> None:
        chunk = self.file.read(size)
        self.ended = not chunk
        self.text, self.place = self.text[self.place :] + chunk, 0

    def _broken(self, where: str, what: str) -> NoReturn:
        raise SaccadeError(f"{self.path}, {where}: not valid JSON ({what})")


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of these files that is there; each may also be there gzipped (or, named `.gz`, unpacked)."""
    for name in names:
        for each in (name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"):
            if (folder / each).is_file():
                return folder / each
    return None


def need_file(folder: Path, name: str, why: str) -> Path:
    """The file, plain or gzipped. Raises: SaccadeError if it is missing, which goes on with `why`."""
    path = find_file(folder, name)
    if path is None:
        raise SaccadeError(f"{folder / name} is missing: {why}")
    return path


def first_bytes(path: Path, count: int = 4096) -> bytes:
    with explain_os_errors(path, "read"), path.open("rb") as file:
        return file.read(count)


def _open_bytes(path: Path) -> IO[bytes]:
    """A file, `.gz` unpacked, as far as one of its size may unpack."""
    if path.suffix == ".gz":
        return io.BufferedReader(Bounded(cast(IO[bytes], gzip.open(path)), path))
    return path.open("rb")


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """A UTF-8 file, `.gz` unpacked. Raises: SaccadeError if it cannot be read, is not UTF-8 or is cut short."""
    with explain_os_errors(path, "read"):
        try:
            with _open_bytes(path) as file:
                yield io.TextIOWrapper(file, encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path} is not UTF-8 text") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SaccadeError(f"{path} is not a whole gzip file: copy it again") from error


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a UTF-8 file; `.gz` is unpacked. Only a line feed ends a line."""
    number = 0
    with explain_os_errors(path, "read"):
        try:
            with _open_bytes(path) as file:
                while line := file.readline(MAX_LINE_BYTES):
                    number += 1
                    if len(line) == MAX_LINE_BYTES:
                        raise SaccadeError(f"{path}, line {number} is longer than {MAX_LINE_BYTES >> 20} MB")
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path}, line {number} is not UTF-8 text") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SaccadeError(f"{path} is not a whole gzip file (after line {number}): copy it again") from error


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of a tab-separated file whose first line names its columns. Quotation marks mean themselves."""
    rows = read_lines(path)
    _, header = next(rows, (1, ""))
    if header.split("\t") != list(columns):
        raise SaccadeError(f"{path}, line 1: the columns are {header[:200]!r}, {'<TAB>'.join(columns)} was expected")
    for number, line in rows:
        fields = line.split("\t")
        if len(fields) != len(columns):
            raise SaccadeError(f"{path}, line {number}: {len(fields)} columns, {len(columns)} were expected")
        yield number, fields
