"""Pictures that could not be read, and why: `broken.json` beside the shards of a feature store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json

BROKEN = "broken.json"


@dataclass(frozen=True)
class Broken:
    """A picture that is not in the store, and the sentence that says why."""

    id: str
    path: str
    reason: str


def read_broken(folder: Path) -> dict[str, Broken]:
    """By id; nothing if all could be read."""
    path = folder / BROKEN
    if not path.exists():
        return {}
    values = read_json(path)
    try:
        return {value["id"]: Broken(**{key: str(text) for key, text in value.items()}) for value in values}
    except (TypeError, KeyError, AttributeError) as error:
        raise SaccadeError(f"{path} must be a list of pictures with id, path and reason: remove it") from error


def write_broken(folder: Path, broken: Iterable[Broken]) -> None:
    """Sorted by id, so that equal lists are equal files; no file if nothing is broken."""
    rows = [to_dict(one) for one in sorted(broken, key=lambda one: one.id)]
    if rows:
        write_json(folder / BROKEN, rows)
    else:
        (folder / BROKEN).unlink(missing_ok=True)
    for leftover in folder.glob(f".{BROKEN}.*.part"):  # of a process that was killed
        leftover.unlink()


def printable(text: object) -> str:
    """A name as text that any file can keep: bytes of a file name that are no UTF-8 are spelt out."""
    return str(text).encode("utf-8", "backslashreplace").decode()
