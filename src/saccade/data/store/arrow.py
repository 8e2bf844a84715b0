# mypy: disable-error-code="attr-defined"
"""The feature store: region features of any number of pictures, or frame features of videos, in memory-mapped Arrow
files, read row by row.

A store is a folder of `manifest.json` and `shard-00000.arrow`, `shard-00001.arrow` …, with `captions.jsonl` beside them
if the pictures have sentences. Nothing is loaded when a store is opened; a row is a view into the mapped file.

It is written picture by picture, resumable, and readable at every moment. Shards never change once written: an
unfinished last one carries its row count (`shard-00001-000476.arrow`) and is superseded, not edited, when writing goes
on. The manifest is replaced after the shard it names is on disk, so a process killed anywhere leaves the last manifest
and every file it names.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line

from saccade.core.arrow import map_batches
from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file, sha256
from saccade.data.formats.regions import check_boxes, check_features, position
from saccade.data.records import Caption, PictureRegions, RegionSource
from saccade.data.store.manifest import CAPTIONS, DTYPES, MANIFEST, Manifest, Shard, read_captions, schema

BATCH_ROWS = 64  # rows per Arrow record batch; fixed, so that equal rows give equal bytes


class FeatureStore(RegionSource):
    """A RegionSource over a store folder: `FeatureStore.open("features")`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._ends = list(accumulate(s.rows for s in manifest.shards))
        self._open: dict[int, _MappedShard] = {}

    @staticmethod
    def open(folder: Path | str) -> FeatureStore:
        """Read the manifest; the shards are mapped when a row of theirs is first read."""
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
    def extractor(self) -> str | None:
        """What made the features."""
        return self.manifest.extractor

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

    def region_counts(self) -> np.ndarray:
        """How many regions each picture has; read from the offsets, no feature is touched."""
        counts = [self._shard(n).region_counts() for n in range(len(self.manifest.shards))]
        return np.concatenate([np.zeros(0, dtype=np.int64), *counts])

    def captions(self) -> tuple[Caption, ...]:
        """The sentences kept beside the features, if any."""
        path = self.folder / CAPTIONS
        return read_captions(path) if path.exists() else ()

    def verify(self) -> None:
        """Read everything once: checksums, row counts, ids, NaN, boxes. Raises: SaccadeError on the first fault."""
        for problem in self.problems():
            raise SaccadeError(problem)

    def problems(self) -> Iterator[str]:
        """Every fault, one text each; nothing if the store is sound."""
        seen: set[str] = set()
        for number, shard in enumerate(self.manifest.shards):
            path = self.folder / shard.file
            try:
                if sha256(path) != shard.sha256:
                    yield f"{path}: the checksum differs from the manifest's, the file was damaged or replaced"
                    continue
                mapped = self._shard(number)
                for row in range(shard.rows):
                    picture = mapped.row(row)
                    if picture.id in seen:
                        yield f'{path}: the id "{picture.id}" occurs twice'
                    seen.add(picture.id)
                    if not np.isfinite(picture.features).all():
                        yield f'{path}: the features of "{picture.id}" hold NaN or infinity'
                    if picture.seconds is not None and not 0 < picture.seconds < math.inf:
                        yield f'{path}: the video "{picture.id}" of {picture.seconds} seconds has no length'
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
        columns = schema(manifest.dtype, manifest.videos)
        self.batches = map_batches(self.path, columns, f"a {manifest.dtype} feature store")
        self.starts = [0, *accumulate(b.num_rows for b in self.batches)]
        if self.starts[-1] != shard.rows:
            raise SaccadeError(f"{self.path} holds {self.starts[-1]} rows, the manifest says {shard.rows}")
        self._views: dict[int, dict[str, Any]] = {}

    def ids(self) -> Iterator[str]:
        for batch in self.batches:
            yield from batch.column("id").to_pylist()

    def region_counts(self) -> np.ndarray:
        return np.concatenate([np.diff(b.column("boxes").offsets.to_numpy()) // 4 for b in self.batches])

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
            seconds=float(views["seconds"][row]) if "seconds" in views else None,
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
            if "seconds" in batch.schema.names:
                views["seconds"] = batch.column("seconds").to_numpy()
            self._views[number] = views
        return self._views[number]


def _item(column: tuple[np.ndarray, np.ndarray], row: int) -> np.ndarray:
    offsets, values = column
    return values[offsets[row] : offsets[row + 1]]


class StoreWriter:
    """Append pictures to a store, new or existing.

    with StoreWriter("features", dim=2048, extractor="bottomup") as writer:
        for id in ids:
            if id not in writer.done:
                writer.append(id, features, boxes, width, height)

    Up to `shard_rows` pictures are held in memory; `flush` writes them at once. Leaving the block writes what is there,
    also on an error, so that the next run goes on from `done`; the bytes do not depend on where a run stopped.
    """

    def __init__(
        self,
        folder: Path | str,
        dim: int,
        dtype: str = "float32",
        extractor: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        shard_rows: int = 1024,
    ) -> None:
        if dtype not in DTYPES:
            raise SaccadeError(f"a feature store keeps float32 or float16, not {dtype}")
        if dim < 1 or shard_rows < 1:
            raise SaccadeError(f"dim ({dim}) and shard_rows ({shard_rows}) must be at least 1")
        self.folder = Path(folder)
        self.done: set[str] = set()
        self._rows: list[PictureRegions] = []  # the pictures of the shard being filled
        self._kept = 0  # how many of them an unfinished shard on disk already holds
        try:
            metadata = None if metadata is None else json.loads(json.dumps(metadata))
        except TypeError as error:
            raise SaccadeError(f"the metadata of {self.folder} must be plain JSON values: {error}") from error
        if (self.folder / MANIFEST).exists():
            self.manifest = self._resume(dim, dtype, extractor, metadata)
            self._remove_strays()
        else:
            self.manifest = Manifest(dim, dtype, extractor, dict(metadata or {}), shard_rows)

    def append(
        self,
        id: str,
        features: np.ndarray,
        boxes: np.ndarray,
        width: int = 0,
        height: int = 0,
        scores: np.ndarray | None = None,
        seconds: float | None = None,
    ) -> None:
        """Add one picture: features [region, dim], boxes [region, 4] as xyxy in 0..1, original size in pixels; or a
        video: its frames, as pieces of a film strip, and its length in `seconds`."""
        where = f'picture "{id}"'
        if not isinstance(id, str) or not id:
            raise SaccadeError(f"the id of a picture must be text, not {id!r}")
        if id in self.done:
            raise SaccadeError(f"{where} is already in {self.folder}")
        if width < 0 or height < 0:
            raise SaccadeError(f"{where}: the size {width}×{height} is negative")
        kept = check_features(features, self.manifest.dim, self.manifest.dtype, where)
        box = check_boxes(boxes, where)
        if len(kept) != len(box):
            raise SaccadeError(f"{where}: {len(kept)} rows of features but {len(box)} boxes")
        score = None if scores is None else np.array(scores, dtype=np.float32)
        if score is not None and score.shape != (len(box),):
            raise SaccadeError(f"{where}: scores have shape {list(score.shape)}, [{len(box)}] was expected")
        if seconds is not None and not 0 < seconds < math.inf:
            raise SaccadeError(f"{where}: a video of {seconds} seconds has no length")
        if self.done and self.manifest.videos != (seconds is not None):
            kinds = ("videos", "a picture") if self.manifest.videos else ("pictures", "a video")
            raise SaccadeError(f"{where}: {self.folder} holds {kinds[0]}, and this is {kinds[1]}")
        self._add(PictureRegions(id, kept, box, int(width), int(height), score, seconds))

    def append_batch(
        self,
        ids: Sequence[str],
        counts: Sequence[int],
        features: np.ndarray,
        boxes: np.ndarray,
        sizes: Sequence[tuple[int, int]],
        scores: np.ndarray | None = None,
        seconds: Sequence[float | None] = (),
    ) -> None:
        """`append` for many pictures at once: the regions of all, one after the other, `counts` of them for each."""
        ends = list(accumulate(counts))
        parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        try:
            kept = check_features(features, self.manifest.dim, self.manifest.dtype, "a batch")
            box = check_boxes(boxes, "a batch")
            score = None if scores is None else np.array(scores, dtype=np.float32)
            sound = (
                all(ids)
                and not self.manifest.videos
                and not any(seconds)
                and self.done.isdisjoint(ids)
                and len(set(ids)) == len(ids)
            )
            sound = sound and min(map(min, sizes), default=0) >= 0 and {len(kept), len(box)} == {sum(counts)}
        except SaccadeError:
            sound = False
        if not sound:  # one by one: those before the one at fault are kept, and its own error is raised
            for n, (id, part, size) in enumerate(zip(ids, parts, sizes, strict=True)):
                own = None if scores is None else scores[part]
                self.append(id, features[part], boxes[part], *size, own, seconds[n] if seconds else None)
            return
        for id, part, (width, height) in zip(ids, parts, sizes, strict=True):
            own = None if score is None else score[part]
            self._add(PictureRegions(id, kept[part], box[part], int(width), int(height), own))

    def _add(self, row: PictureRegions) -> None:
        if not self.done:
            self.manifest = replace(self.manifest, videos=row.seconds is not None)
        self._rows.append(row)
        self.done.add(row.id)
        if len(self._rows) == self.manifest.shard_rows:
            self.flush()

    def flush(self) -> None:
        """Write what has been appended: after this, nothing is lost to a kill."""
        if len(self._rows) > self._kept or not (self.folder / MANIFEST).exists():
            self._commit()

    def __enter__(self) -> StoreWriter:
        self.flush()  # an empty store is a store: readable from the first moment
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is None:
            self.flush()
        elif self._rows:
            with suppress(SaccadeError):  # the first error is the one to read
                self.flush()

    def _commit(self) -> None:
        """Shard first, then the manifest that names it, then away with what it supersedes."""
        finished = [s for s in self.manifest.shards if s.rows == self.manifest.shard_rows]
        shards = list(finished)
        if self._rows:
            full = len(self._rows) == self.manifest.shard_rows
            name = f"shard-{len(finished):05d}" + ("" if full else f"-{len(self._rows):06d}") + ".arrow"
            with atomic_file(self.folder / name) as temporary:
                columns = schema(self.manifest.dtype, self.manifest.videos)
                with temporary.open("wb") as file, pa.ipc.new_file(file, columns) as sink:
                    for start in range(0, len(self._rows), BATCH_ROWS):
                        sink.write_batch(_record_batch(self._rows[start : start + BATCH_ROWS], columns))
                digest = sha256(temporary)
            shards.append(Shard(name, len(self._rows), digest))
        self.manifest = replace(self.manifest, shards=tuple(shards))
        self.manifest.save(self.folder)
        self._remove_strays()
        if len(self._rows) == self.manifest.shard_rows:
            self._rows = []
        self._kept = len(self._rows)

    def _resume(self, dim: int, dtype: str, extractor: str | None, metadata: Mapping[str, Any] | None) -> Manifest:
        store = FeatureStore.open(self.folder)
        manifest = store.manifest
        given = {
            "dim": dim,
            "dtype": dtype,
            "extractor": extractor or manifest.extractor,
            "metadata": metadata or manifest.metadata,
        }
        for key, value in given.items():
            if getattr(manifest, key) != value:
                raise SaccadeError(
                    f"{self.folder} was begun with {key} {getattr(manifest, key)!r} and cannot go on with {value!r}"
                )
        self.done = set(store.ids)
        if manifest.shards and manifest.shards[-1].rows < manifest.shard_rows:
            first = manifest.count - manifest.shards[-1].rows
            self._rows = [store.get(i) for i in range(first, manifest.count)]  # views: nothing is read yet
        self._kept = len(self._rows)
        return manifest

    def _remove_strays(self) -> None:
        """Shards that no manifest names: superseded ones, or left by a kill between shard and manifest."""
        named = {s.file for s in self.manifest.shards}
        for path in self.folder.glob("shard-*.arrow"):
            if path.name not in named:
                path.unlink()
        for path in [*self.folder.glob(".shard-*.part"), *self.folder.glob(".manifest.json.*.part")]:
            path.unlink()


def _record_batch(rows: list[PictureRegions], columns: pa.Schema) -> pa.RecordBatch:
    def ragged(name: str, values: list[np.ndarray], wide: bool = False) -> pa.Array:
        lengths = [v.size for v in values]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64 if wide else np.int32)
        flat = np.concatenate([v.reshape(-1) for v in values])
        kind = columns.field(name).type
        maker = pa.LargeListArray if wide else pa.ListArray
        return maker.from_arrays(pa.array(offsets), pa.array(flat, type=kind.value_type), type=kind)

    scores = pa.array([None if r.scores is None else r.scores for r in rows], type=columns.field("scores").type)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r.id for r in rows], pa.string()),
            pa.array([r.width for r in rows], pa.int32()),
            pa.array([r.height for r in rows], pa.int32()),
            ragged("boxes", [r.boxes for r in rows]),
            ragged("features", [r.features for r in rows], wide=True),
            scores,
            *([pa.array([r.seconds for r in rows], pa.float64())] if "seconds" in columns.names else []),
        ],
        schema=columns,
    )
