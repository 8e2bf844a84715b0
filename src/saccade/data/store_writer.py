# mypy: disable-error-code="attr-defined"
"""Writing a feature store: picture by picture, resumable, and readable at every moment.

Shards never change once written. A full shard is `shard-00000.arrow`; an unfinished last one carries its row count
(`shard-00001-000476.arrow`) and is superseded, not edited, when writing goes on. The manifest is replaced after the
shard it names is on disk, so a process killed anywhere leaves the last manifest and every file it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa  # declares no exports, hence the first line

from saccade.data.manifest import DTYPES, Manifest, Shard, schema
from saccade.data.picture import PictureRegions, check_boxes, check_features
from saccade.errors import SaccadeError
from saccade.files import atomic_file, sha256

BATCH_ROWS = 64  # rows per Arrow record batch; fixed, so that equal rows give equal bytes


class StoreWriter:
    """Append pictures to a store, new or existing.

    with StoreWriter("features", dim=2048, eye="bottomup") as writer:
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
        eye: str | None = None,
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
        if (self.folder / "manifest.json").exists():
            self.manifest = self._resume(dim, dtype, eye, metadata)
            self._remove_strays()
        else:
            self.manifest = Manifest(dim, dtype, eye, dict(metadata or {}), shard_rows)

    def append(
        self,
        id: str,
        features: np.ndarray,
        boxes: np.ndarray,
        width: int = 0,
        height: int = 0,
        scores: np.ndarray | None = None,
    ) -> None:
        """Add one picture: features [region, dim], boxes [region, 4] as xyxy in 0..1, original size in pixels."""
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
        self._rows.append(PictureRegions(id, kept, box, int(width), int(height), score))
        self.done.add(id)
        if len(self._rows) == self.manifest.shard_rows:
            self.flush()

    def flush(self) -> None:
        """Write what has been appended: after this, nothing is lost to a kill."""
        if len(self._rows) > self._kept or not (self.folder / "manifest.json").exists():
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
                with temporary.open("wb") as file, pa.ipc.new_file(file, schema(self.manifest.dtype)) as sink:
                    for start in range(0, len(self._rows), BATCH_ROWS):
                        sink.write_batch(_record_batch(self._rows[start : start + BATCH_ROWS], self.manifest.dtype))
                digest = sha256(temporary)
            shards.append(Shard(name, len(self._rows), digest))
        self.manifest = replace(self.manifest, shards=tuple(shards))
        self.manifest.save(self.folder)
        self._remove_strays()
        if len(self._rows) == self.manifest.shard_rows:
            self._rows = []
        self._kept = len(self._rows)

    def _resume(self, dim: int, dtype: str, eye: str | None, metadata: Mapping[str, Any] | None) -> Manifest:
        from saccade.data.store import FeatureStore  # here, because the store also exports its writer

        store = FeatureStore.open(self.folder)
        manifest = store.manifest
        given = {"dim": dim, "dtype": dtype, "eye": eye or manifest.eye, "metadata": metadata or manifest.metadata}
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


def _record_batch(rows: list[PictureRegions], dtype: str) -> pa.RecordBatch:
    columns = schema(dtype)

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
        ],
        schema=columns,
    )
