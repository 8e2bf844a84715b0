"""Text files of data sets, plain or gzipped: lines, tables with a header, JSON. A fault names the line."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from saccade.core.errors import SaccadeError, explain_os_errors

LONGEST = 1 << 26  # bytes of a line, and of a JSON value read at once from a line: a gzipped bomb stops here


def find_file(folder: Path, *names: str) -> Path | None:
    """The first of these files that is there; each may also be there gzipped (or, named `.gz`, unpacked)."""
    for name in names:
        for each in (name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"):
            if (folder / each).is_file():
                return folder / each
    return None


def need_file(folder: Path, name: str, why: str) -> Path:
    """The file, plain or gzipped, or a sentence that names it and goes on with `why`."""
    path = find_file(folder, name)
    if path is None:
        raise SaccadeError(f"{folder / name} is missing: {why}")
    return path


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a UTF-8 file; `.gz` is unpacked. Only a line feed ends a line."""
    number = 0
    with explain_os_errors(path, "read"):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                while line := file.readline(LONGEST):
                    number += 1
                    if len(line) == LONGEST:
                        raise SaccadeError(f"{path}, line {number} is longer than {LONGEST >> 20} MB")
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


def read_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, value) of a file with one JSON value a line; empty lines are passed over."""
    for number, line in read_lines(path):
        if line.strip():
            yield number, parse_json(line, f"{path}, line {number}")


def parse_json(text: str, where: str) -> Any:
    """A JSON value, or a sentence: also for NaN, for numbers of thousands of digits and for endless nesting."""

    def refuse(constant: str) -> NoReturn:
        raise SaccadeError(f"{where}: {constant} is not a number")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise SaccadeError(f"{where}: not valid JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise SaccadeError(f"{where}: not usable JSON ({str(error).splitlines()[0]})") from error


def read_json_file(path: Path) -> Any:
    """The one JSON value of a file, plain or gzipped."""
    with explain_os_errors(path, "read"):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                text = io.TextIOWrapper(file, encoding="utf-8-sig").read()
        except UnicodeDecodeError as error:
            raise SaccadeError(f"{path} is not UTF-8 text") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SaccadeError(f"{path} is not a whole gzip file: copy it again") from error
    return parse_json(text, str(path))
