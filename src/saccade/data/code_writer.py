"""Writing a store of region codes: picture after picture, resumable, and readable at every moment.

As in a feature store, shards never change once written: a full one is `codes-00000.safetensors`, an unfinished last one
carries its number of pictures (`codes-00001-000476.safetensors`) and is superseded when writing goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from saccade.core.errors import SaccadeError, surfaced_os_errors
from saccade.core.files import atomic_file, sha256
from saccade.data.code_store import BYTE_COLUMNS, CONTENTS, DTYPES, CodeContents, CodeShard, CodeStore
from saccade.ops.region_codes import RegionCodes


class CodeWriter:
    """Append pictures' codes to a store, new or existing.

    with CodeWriter("codes", dim=128) as writer:
        for batch in batches:
            writer.extend(batch.ids, code.regions, code.mask)

    Up to `shard_pictures` pictures are held in memory. Leaving the block writes what is there, also on an error, so
    that the next run goes on after `done`; the bytes do not depend on where a run stopped.
    """

    def __init__(
        self,
        folder: Path | str,
        dim: int,
        dtype: str = "float16",
        metadata: Mapping[str, Any] | None = None,
        shard_pictures: int = 8192,
    ) -> None:
        if dtype not in DTYPES:
            raise SaccadeError(f"a code store keeps {', '.join(DTYPES)}, not {dtype}")
        if dim < 1 or shard_pictures < 1:
            raise SaccadeError(f"dim ({dim}) and shard_pictures ({shard_pictures}) must be at least 1")
        self.folder = Path(folder)
        self.done: set[str] = set()
        self._ids: list[str] = []  # of the shard being filled
        self._codes: list[RegionCodes] = []
        self._kept = 0  # how many of them an unfinished shard on disk already holds
        self.contents = CodeContents(dim, dtype, shard_pictures, dict(metadata or {}))
        if (self.folder / CONTENTS).exists():
            self._resume()

    def append(self, id: str, vectors: Shaped[Tensor, "region dim"]) -> None:
        """Add one picture."""
        if id in self.done:
            raise SaccadeError(f'picture "{id}" is already in {self.folder}')
        if vectors.ndim != 2:
            raise SaccadeError(f'picture "{id}": codes have shape {list(vectors.shape)}, [region, dim] was expected')
        self.add([id], RegionCodes.rows(vectors, torch.tensor([len(vectors)])))

    def extend(
        self,
        ids: Sequence[str],
        regions: Float[Tensor, "picture region dim"],
        mask: Bool[Tensor, "picture region"] | None = None,
    ) -> None:
        """Add a batch of pictures; those that are there already are passed over."""
        self.add(ids, RegionCodes.of(regions, mask))

    def add(self, ids: Sequence[str], codes: RegionCodes) -> None:
        """Add packed codes, rounded to the store's kind; pictures that are there already are passed over."""
        if len(ids) != len(codes) or len(set(ids)) != len(ids):
            raise SaccadeError(f"{len(ids)} ids were given for {len(codes)} pictures, one of its own for each expected")
        if codes.dim != self.contents.dim:
            raise SaccadeError(f"the codes have {codes.dim} dimensions, {self.folder} keeps {self.contents.dim}")
        new = [number for number, id in enumerate(ids) if id not in self.done]
        kind = DTYPES[self.contents.dtype]
        kept = (codes if len(new) == len(ids) else codes.pick(torch.tensor(new, dtype=torch.int64))).to("cpu")
        if kept.vectors.is_floating_point():
            kept = kept.to_kind(torch.float32 if kind == torch.int8 else kind)
            bad = ~kept.vectors.isfinite().all(dim=1)
            if bool(bad.any()):
                picture = int(torch.searchsorted(kept.starts, bad.nonzero()[0, 0], right=True)) - 1
                raise SaccadeError(f'picture "{ids[new[picture]]}": its codes hold NaN, infinity or too large a number')
        kept = kept.to_kind(kind)
        first = 0
        while first < len(kept):
            stop = min(len(kept), first + self.contents.shard_pictures - len(self._ids))
            part = [ids[number] for number in new[first:stop]]
            self._ids += part
            self.done.update(part)
            self._codes.append(kept.part(first, stop).copied())
            first = stop
            if len(self._ids) == self.contents.shard_pictures:
                self.flush()

    def flush(self) -> None:
        """Write what has been added: after this, nothing is lost to a kill."""
        if len(self._ids) > self._kept or not (self.folder / CONTENTS).exists():
            self._commit()

    def __enter__(self) -> CodeWriter:
        self.flush()  # an empty store is a store: readable from the first moment
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is None:
            self.flush()
        else:
            with suppress(SaccadeError):  # the first error is the one to read
                self.flush()

    def _commit(self) -> None:
        """Shard first, then the contents that name it, then away with what it supersedes."""
        full = len(self._ids) == self.contents.shard_pictures
        shards = [shard for shard in self.contents.shards if shard.pictures == self.contents.shard_pictures]
        if self._ids:
            name = f"codes-{len(shards):05d}" + ("" if full else f"-{len(self._ids):06d}") + ".safetensors"
            shards.append(_write_shard(self.folder / name, self._ids, RegionCodes.join(self._codes)))
        self.contents = replace(self.contents, shards=tuple(shards))
        self.contents.save(self.folder)
        named = {shard.file for shard in shards}
        for path in [*self.folder.glob("codes-*.safetensors"), *self.folder.glob(".codes*.part")]:
            if path.name not in named:
                path.unlink()
        if full:
            self._ids, self._codes = [], []
        self._kept = len(self._ids)

    def _resume(self) -> None:
        given, store = self.contents, CodeStore(self.folder)
        for key in ("dim", "dtype", "metadata"):
            old, new = getattr(store.contents, key), getattr(given, key)
            if old != new and (new or key != "metadata"):
                raise SaccadeError(f"{self.folder} was begun with {key} {old!r} and cannot go on with {new!r}")
        self.contents = store.contents
        self.done = set(store.ids)
        last = store.contents.shards[-1] if store.contents.shards else None
        if last is not None and last.pictures < store.contents.shard_pictures:
            first = len(store) - last.pictures
            self._codes = [store.part(first, len(store))]  # views: nothing is read yet
            self._ids = list(store.ids[first:])
        self._kept = len(self._ids)


def write_bytes(exact: CodeStore, folder: Path | str) -> CodeStore:
    """A store of the same pictures in bytes, shard by shard; a run that was stopped goes on."""
    size = exact.contents.shard_pictures
    with CodeWriter(folder, exact.dim, "int8", exact.contents.metadata, size) as writer:
        for first in range(0, len(exact), size):
            stop = min(first + size, len(exact))
            ids = exact.ids[first:stop]
            if not writer.done.issuperset(ids):
                writer.add(ids, exact.part(first, stop))
    return CodeStore(folder)


def _write_shard(path: Path, ids: Sequence[str], codes: RegionCodes) -> CodeShard:
    columns = {"vectors": codes.vectors, "counts": codes.starts.diff()}
    columns |= {name: value for name in BYTE_COLUMNS if (value := getattr(codes, name)) is not None}
    with atomic_file(path) as temporary:
        with surfaced_os_errors():
            safetensors.torch.save_file(columns, temporary, metadata={"ids": json.dumps(list(ids))})
        digest = sha256(temporary)
    return CodeShard(path.name, len(ids), len(codes.vectors), digest)
