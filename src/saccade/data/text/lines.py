"""Text files of data sets, plain or gzipped: read by lines, or as tables with a header. A fault names the line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from saccade.core.errors import SaccadeError, explain_os_errors

MAX_LINE_BYTES = 1 << 26  # a gzipped bomb stops here


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


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """A UTF-8 file, `.gz` unpacked. Raises: SaccadeError if it cannot be read, is not UTF-8 or is cut short."""
    with explain_os_errors(path, "read"):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                yield io.TextIOWrapper(cast(IO[bytes], file), encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path} is not UTF-8 text") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SaccadeError(f"{path} is not a whole gzip file: copy it again") from error


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a UTF-8 file; `.gz` is unpacked. Only a line feed ends a line."""
    number = 0
    with explain_os_errors(path, "read"):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
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
