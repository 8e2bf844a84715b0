# mypy: disable-error-code="attr-defined"
"""The feature store: region features of any number of pictures in memory-mapped Arrow files, read row by row.

A store is a folder of `manifest.json` and `shard-00000.arrow`, `shard-00001.arrow` …, with `captions.jsonl` beside them
if the pictures have sentences. Nothing is loaded when a store is opened; a row is a view into the mapped file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line

from saccade.batch import RegionBatch
from saccade.data.captions import CAPTIONS, Caption, read_captions
from saccade.data.manifest import Manifest, Shard, schema
from saccade.data.picture import PictureRegions, check_boxes, pad_pictures, position
from saccade.data.store_writer import StoreWriter
from saccade.errors import SaccadeError, explain_os_errors
from saccade.files import sha256

__all__ = ["FeatureStore", "StoreWriter"]


class FeatureStore:
    """A RegionSource over a store folder: `FeatureStore.open("features")`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._ends = list(accumulate(s.rows for s in manifest.shards))
        self._open: dict[int, _MappedShard] = {}

    @staticmethod
    def open(folder: Path | str) -> FeatureStore:
        """Read the manifest; the shards are mapped when a row of theirs is first asked for."""
        return FeatureStore(Path(folder), Manifest.load(Path(folder)))

    def __reduce__(self) -> Any:  # a loader's worker process maps the files itself
        return FeatureStore.open, (self.folder,)

    @property
    def dim(self) -> int:
        return self.manifest.dim

    @property
    def dtype(self) -> str:
        return self.manifest.dtype

    @property
    def eye(self) -> str | None:
        """What made the features."""
        return self.manifest.eye

    @property
    def metadata(self) -> dict[str, Any]:
        return self.manifest.metadata

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(i for n in range(len(self.manifest.shards)) for i in self._shard(n).ids())

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each id."""
        return {id: n for n, id in enumerate(self.ids)}

    def __len__(self) -> int:
        return self.manifest.count

    def get(self, index: int) -> PictureRegions:
        """One picture; `features` and `boxes` are read-only views into the mapped file (no copy)."""
        index = position(index, len(self), self.folder)
        number = bisect_right(self._ends, index)
        return self._shard(number).row(index - (self._ends[number - 1] if number else 0))

    def __iter__(self) -> Iterator[PictureRegions]:
        return (self.get(i) for i in range(len(self)))

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        return pad_pictures([self.get(i) for i in indices], self.dim)

    def region_counts(self) -> np.ndarray:
        """How many regions each picture has; read from the offsets, no feature is touched."""
        counts = [self._shard(n).region_counts() for n in range(len(self.manifest.shards))]
        return np.concatenate([np.zeros(0, dtype=np.int64), *counts])

    def captions(self) -> tuple[Caption, ...]:
        """The sentences kept beside the features, if any."""
        path = self.folder / CAPTIONS
        return read_captions(path) if path.exists() else ()

    def verify(self) -> None:
        """Read everything once: checksums, row counts, ids, NaN, boxes. Raises on the first thing that is wrong."""
        for problem in self.problems():
            raise SaccadeError(problem)

    def problems(self) -> Iterator[str]:
        """Every fault as a sentence; nothing if the store is sound."""
        seen: set[str] = set()
        for number, shard in enumerate(self.manifest.shards):
            path = self.folder / shard.file
            try:
                if sha256(path) != shard.sha256:
                    yield f"{path}: the checksum differs from the manifest's, the file was damaged or replaced"
                    continue
                mapped = self._shard(number)
                mapped.validate()
                for row in range(shard.rows):
                    picture = mapped.row(row)
                    if picture.id in seen:
                        yield f'{path}: the id "{picture.id}" occurs twice'
                    seen.add(picture.id)
                    if not np.isfinite(picture.features).all():
                        yield f'{path}: the features of "{picture.id}" hold NaN or infinity'
                    check_boxes(picture.boxes, f'{path}: picture "{picture.id}"')
            except SaccadeError as error:
                yield str(error)

    def _shard(self, number: int) -> _MappedShard:
        if number not in self._open:
            self._open[number] = _MappedShard(self.folder, self.manifest.shards[number], self.manifest)
        return self._open[number]


class _MappedShard:
    """One Arrow file, mapped; its record batches as NumPy views."""

    def __init__(self, folder: Path, shard: Shard, manifest: Manifest) -> None:
        self.path = folder / shard.file
        self.dim = manifest.dim
        with explain_os_errors(self.path, "read"):
            try:
                reader = pa.ipc.open_file(pa.memory_map(str(self.path), "r"))
                self.batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            except (pa.ArrowInvalid, pa.ArrowSerializationError) as error:
                raise SaccadeError(f"{self.path} is cut short or is not an Arrow file") from error
        if not reader.schema.equals(schema(manifest.dtype)):
            raise SaccadeError(f"{self.path}: the columns are not those of a {manifest.dtype} feature store")
        self.starts = [0, *accumulate(b.num_rows for b in self.batches)]
        if self.starts[-1] != shard.rows:
            raise SaccadeError(f"{self.path} holds {self.starts[-1]} rows, the manifest says {shard.rows}")
        self._views: dict[int, dict[str, Any]] = {}

    def ids(self) -> Iterator[str]:
        for batch in self.batches:
            yield from batch.column("id").to_pylist()

    def region_counts(self) -> np.ndarray:
        return np.concatenate([np.diff(b.column("boxes").offsets.to_numpy()) // 4 for b in self.batches])

    def validate(self) -> None:
        for batch in self.batches:
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SaccadeError(f"{self.path} is damaged: {error}") from error

    def row(self, row: int) -> PictureRegions:
        number = bisect_right(self.starts, row) - 1
        views, row = self._view(number), row - self.starts[number]
        features, boxes = _item(views["features"], row), _item(views["boxes"], row)
        if len(boxes) % 4 or len(features) != len(boxes) // 4 * self.dim:
            raise SaccadeError(f"{self.path} is damaged: {len(features)} feature values for {len(boxes)} of boxes")
        return PictureRegions(
            id=views["id"][row].as_py(),
            features=features.reshape(-1, self.dim),
            boxes=boxes.reshape(-1, 4),
            width=int(views["width"][row]),
            height=int(views["height"][row]),
            scores=_item(views["scores"], row) if views["scored"][row].is_valid else None,
        )

    def _view(self, number: int) -> dict[str, Any]:
        if number not in self._views:
            batch = self.batches[number]
            lists = {name: batch.column(name) for name in ("features", "boxes", "scores")}
            views: dict[str, Any] = {
                name: (column.offsets.to_numpy(), column.values.to_numpy(zero_copy_only=True))
                for name, column in lists.items()
            }
            views["scored"] = lists["scores"]
            views["id"] = batch.column("id")
            views["width"], views["height"] = batch.column("width").to_numpy(), batch.column("height").to_numpy()
            self._views[number] = views
        return self._views[number]


def _item(column: tuple[np.ndarray, np.ndarray], row: int) -> np.ndarray:
    offsets, values = column
    return values[offsets[row] : offsets[row + 1]]
