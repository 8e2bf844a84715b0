"""Columns of the user's own for an index, from a table (.csv, .tsv) or JSON lines, by the pictures' names."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.core.files import read_text
from saccade.search.index import check_column

NAMES = ("image", "id", "path", "file", "filename")  # of the column that says whose a row is


def read_metadata(file: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The values by picture, and what kind each column is of: int, float or text; `labels` may be several, by ";".

    Raises: SaccadeError if the file is no such table.
    """
    rows = _json_lines(file) if file.suffix.lower() in (".jsonl", ".ndjson") else _table(file)
    if not rows:
        raise SaccadeError(f"{file} holds no rows")
    key = next((name for name in NAMES if name in rows[0]), None)
    if key is None:
        raise SaccadeError(f"{file} does not say whose its rows are: a column {', '.join(NAMES)} was expected")
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != key]
    kinds = {name: _kind([row.get(name) for row in rows]) for name in names if name != "labels"}
    for name, kind in kinds.items():
        check_column(name, kind)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        own = {name: _value(row.get(name), kinds[name]) for name in kinds}
        if "labels" in names:
            given = row.get("labels") or []
            own["labels"] = (
                [str(v) for v in given]
                if isinstance(given, list)
                else [part.strip() for part in str(given).split(";") if part.strip()]
            )
        found[str(row.get(key))] = own
    return found, kinds


def _table(file: Path) -> list[dict[str, Any]]:
    lines = read_text(file).splitlines()
    reader = csv.DictReader(lines, delimiter="\t" if file.suffix.lower() == ".tsv" else ",", strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise SaccadeError(f"{file}, line {reader.line_num}: {error}") from error
    if any(None in row or None in row.values() for row in rows):
        raise SaccadeError(f"{file}: a row has more or fewer fields than the first line names")
    return rows


def _json_lines(file: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SaccadeError(f"{file}, line {number} is not JSON") from error
            if not isinstance(row, dict):
                raise SaccadeError(f"{file}, line {number}: a mapping was expected")
            rows.append(row)
    return rows


def _kind(values: list[Any]) -> str:
    given = [value for value in values if value not in (None, "")]
    for kind, convert in (("int", _whole), ("float", float)):
        try:
            for value in given:
                convert(value)
        except (TypeError, ValueError):
            continue
        return kind if given else "text"
    return "text"


def _whole(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError
    number = int(value)
    if abs(number) >= 2**63:
        raise ValueError
    return number


def _value(value: Any, kind: str) -> Any:
    if value in (None, ""):
        return None
    return _whole(value) if kind == "int" else float(value) if kind == "float" else str(value)
