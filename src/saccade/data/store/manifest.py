# mypy: disable-error-code="attr-defined"
"""What lies beside the shards of a feature store.

`manifest.json`: what the shards hold, how many rows, and their checksums. `captions.jsonl`: sentences, one
{"image": id, "text": …, "split": …} a line. `broken.json`: pictures that could not be read, and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa  # declares no exports, hence the first line

from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json, write_text
from saccade.data.records import Caption
from saccade.data.text_files import JsonEntry, read_json_lines

MANIFEST, CAPTIONS, BROKEN = "manifest.json", "captions.jsonl", "broken.json"
FORMAT, VERSION = "saccade-features", 1
DTYPES = ("float32", "float16")


@dataclass(frozen=True)
class Shard:
    """One Arrow file. A shard that is not full carries its row count in its name, so no file ever changes."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`."""

    dim: int
    dtype: str = "float32"
    extractor: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    shard_rows: int = 1024
    shards: tuple[Shard, ...] = ()
    videos: bool = False  # whether the rows are videos, each with its length

    @property
    def count(self) -> int:
        return sum(s.rows for s in self.shards)

    def save(self, folder: Path) -> None:
        head = {"format": FORMAT, "version": VERSION, "count": self.count}
        values = to_dict(self)
        if not self.videos:  # pictures are kept as they were before there were videos
            del values["videos"]
        write_json(folder / MANIFEST, {**head, **values})

    @staticmethod
    def load(folder: Path) -> Manifest:
        path = folder / MANIFEST
        if not path.exists():
            raise SaccadeError(f"{path} is missing: a feature store is a folder with manifest.json and shard-*.arrow")
        values = read_json(path)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise SaccadeError(f'{path} is not the manifest of a feature store ("format": "{FORMAT}" was expected)')
        if values.get("version") != VERSION:
            raise SaccadeError(f"{path}: format version {values.get('version')!r}, this Saccade reads {VERSION}")
        if values.get("dtype") not in DTYPES:
            raise SaccadeError(f'{path}: "dtype" is {values.get("dtype")!r}, float32 or float16 was expected')
        metadata, shards = values.get("metadata", {}), values.get("shards")
        for key, value, kind, name in (("metadata", metadata, dict, "a mapping"), ("shards", shards, list, "a list")):
            if not isinstance(value, kind):
                raise SaccadeError(f'{path}: "{key}" is {value!r}, {name} was expected')
        entry = JsonEntry(values, str(path))
        manifest = Manifest(
            dim=entry.whole("dim", 1),
            dtype=values["dtype"],
            extractor=entry.text("extractor") if "extractor" in entry else None,
            metadata=metadata,
            shard_rows=entry.whole("shard_rows", 1),
            shards=tuple(_shard(shard, path) for shard in shards or ()),
            videos=values.get("videos") is True,
        )
        if values.get("count") != manifest.count:
            raise SaccadeError(f"{path}: count is {values.get('count')!r}, but the shards hold {manifest.count} rows")
        return manifest


def schema(dtype: str, videos: bool = False) -> pa.Schema:
    """The columns of a shard. Features are a large_list: 64-bit offsets, so no picture count can overflow them."""
    number = pa.float16() if dtype == "float16" else pa.float32()
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("width", pa.int32(), nullable=False),
            pa.field("height", pa.int32(), nullable=False),
            pa.field("boxes", pa.list_(pa.float32()), nullable=False),
            pa.field("features", pa.large_list(number), nullable=False),
            pa.field("scores", pa.list_(pa.float32())),
            *([pa.field("seconds", pa.float64(), nullable=False)] if videos else []),
        ]
    )


def _shard(values: Any, path: Path) -> Shard:
    if not isinstance(values, dict):
        raise SaccadeError(f"{path}: a shard is {values!r}, a mapping with file, rows and sha256 was expected")
    entry = JsonEntry(values, str(path))
    shard = Shard(entry.text("file"), entry.whole("rows", 1), entry.text("sha256"))
    if Path(shard.file).name != shard.file or not shard.file.startswith("shard-"):  # never reach out of the folder
        raise SaccadeError(f'{path}: the shard file "{shard.file}" must be a name like shard-00000.arrow')
    return shard


def read_captions(path: Path | str) -> tuple[Caption, ...]:
    found = []
    for number, values in read_json_lines(Path(path)):
        if not isinstance(values, dict) or not all(isinstance(values.get(key), str) for key in ("image", "text")):
            raise SaccadeError(f'{path}, line {number}: {{"image": id, "text": sentence}} was expected')
        split = values.get("split")
        if split is not None and not isinstance(split, str):
            raise SaccadeError(f'{path}, line {number}: "split" is {split!r}, text was expected')
        found.append(Caption(values["image"], values["text"], split))
    return tuple(found)


def write_captions(path: Path | str, captions: Iterable[Caption]) -> None:
    def line(caption: Caption) -> str:
        values = {"image": caption.image, "text": caption.text}
        if caption.split is not None:
            values["split"] = caption.split
        return json.dumps(values, ensure_ascii=False) + "\n"

    write_text(path, "".join(map(line, captions)))


@dataclass(frozen=True)
class Broken:
    """A picture that is not in the store, and why."""

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
