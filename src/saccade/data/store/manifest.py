# mypy: disable-error-code="attr-defined"
"""The table of contents of a feature store: what the shards hold, how many rows, and their checksums."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa  # declares no exports, hence the first line

from saccade.core.config import to_dict
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json

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

    @property
    def count(self) -> int:
        return sum(s.rows for s in self.shards)

    def save(self, folder: Path) -> None:
        head = {"format": FORMAT, "version": VERSION, "count": self.count}
        write_json(folder / "manifest.json", {**head, **to_dict(self)})

    @staticmethod
    def load(folder: Path) -> Manifest:
        path = folder / "manifest.json"
        if not path.exists():
            raise SaccadeError(f"{path} is missing: a feature store is a folder with manifest.json and shard-*.arrow")
        values = read_json(path)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise SaccadeError(f'{path} is not the manifest of a feature store ("format": "{FORMAT}" was expected)')
        if values.get("version") != VERSION:
            raise SaccadeError(f"{path}: format version {values.get('version')!r}, this Saccade reads {VERSION}")
        manifest = Manifest(
            dim=_whole(values, "dim", path, least=1),
            dtype=_choice(values, "dtype", path),
            extractor=_text_or_none(values, "extractor", path),
            metadata=_mapping(values, "metadata", path),
            shard_rows=_whole(values, "shard_rows", path, least=1),
            shards=tuple(_shard(s, path) for s in _items(values, "shards", path)),
        )
        if values.get("count") != manifest.count:
            raise SaccadeError(f"{path}: count is {values.get('count')!r}, but the shards hold {manifest.count} rows")
        return manifest


def schema(dtype: str) -> pa.Schema:
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
        ]
    )


def _whole(values: dict[str, Any], key: str, path: Path, least: int) -> int:
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SaccadeError(f'{path}: "{key}" is {value!r}, a whole number of at least {least} was expected')
    return value


def _choice(values: dict[str, Any], key: str, path: Path) -> str:
    value = values.get(key)
    if value not in DTYPES:
        raise SaccadeError(f'{path}: "{key}" is {value!r}, float32 or float16 was expected')
    return str(value)


def _text_or_none(values: dict[str, Any], key: str, path: Path) -> str | None:
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise SaccadeError(f'{path}: "{key}" is {value!r}, text was expected')
    return value


def _mapping(values: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = values.get(key, {})
    if not isinstance(value, dict):
        raise SaccadeError(f'{path}: "{key}" is {value!r}, a mapping was expected')
    return value


def _items(values: dict[str, Any], key: str, path: Path) -> list[Any]:
    value = values.get(key)
    if not isinstance(value, list):
        raise SaccadeError(f'{path}: "{key}" is {value!r}, a list was expected')
    return value


def _shard(values: Any, path: Path) -> Shard:
    if not isinstance(values, dict):
        raise SaccadeError(f"{path}: a shard is {values!r}, a mapping with file, rows and sha256 was expected")
    file, digest = values.get("file"), values.get("sha256")
    if not isinstance(file, str) or not isinstance(digest, str):
        raise SaccadeError(f"{path}: a shard needs file, rows and sha256, not {values!r}")
    if Path(file).name != file or not file.startswith("shard-"):  # a manifest never reaches out of its folder
        raise SaccadeError(f'{path}: the shard file "{file}" must be a name like shard-00000.arrow')
    return Shard(file, _whole(values, "rows", path, least=1), digest)
