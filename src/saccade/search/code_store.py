"""A store of region codes for search: half precision or bytes, memory-mapped, of any number of pictures.

A store is a folder of `codes.json` and shards `codes-00000.safetensors`, `codes-00001.safetensors` …. A shard holds the
codes of its pictures as rows of one table, how many rows each picture has, and the pictures' ids; bytes have their
scale and their bounds beside them. Nothing is loaded when a store is opened: a part of it is a view into the
mapped files.

Writing is resumable, and a store is readable at every moment: shards never change once written. A full one is
`codes-00000.safetensors`, an unfinished last one carries its number of pictures (`codes-00001-000476.safetensors`) and
is superseded when writing goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from saccade.core.errors import SaccadeError, explain_os_errors, surfaced_os_errors
from saccade.core.files import atomic_file, read_json, sha256, write_json
from saccade.data.text_files import JsonEntry
from saccade.search.region_codes import RegionCodes

FORMAT, VERSION = "saccade-codes", 1
CONTENTS = "codes.json"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int8": torch.int8}
BYTE_COLUMNS = ("scale", "reach", "error")  # the rows of `RegionCodes.bounds`


@dataclass(frozen=True)
class CodeShard:
    """One file. A shard that is not full carries its number of pictures in its name, so no file ever changes."""

    file: str
    pictures: int
    rows: int
    sha256: str


@dataclass(frozen=True)
class CodeContents:
    """`codes.json`."""

    dim: int
    dtype: str = "float16"
    shard_pictures: int = 8192
    metadata: dict[str, Any] = field(default_factory=dict)
    shards: tuple[CodeShard, ...] = ()

    @property
    def count(self) -> int:
        return sum(shard.pictures for shard in self.shards)

    def save(self, folder: Path) -> None:
        write_json(folder / CONTENTS, {"format": FORMAT, "version": VERSION, "count": self.count, **asdict(self)})

    @staticmethod
    def load(folder: Path) -> CodeContents:
        path = folder / CONTENTS
        if not path.exists():
            raise SaccadeError(f"{path} is missing: a code store is a folder with {CONTENTS} and codes-*.safetensors")
        values = read_json(path)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise SaccadeError(f'{path} is not the table of contents of a code store ("format": "{FORMAT}" is missing)')
        if values.get("version") != VERSION:
            raise SaccadeError(f"{path}: format version {values.get('version')!r}, this Saccade reads {VERSION}")
        if values.get("dtype") not in list(DTYPES):
            raise SaccadeError(f'{path}: "dtype" is {values.get("dtype")!r}, one of {", ".join(DTYPES)} was expected')
        shards, metadata = values.get("shards"), values.get("metadata", {})
        if not isinstance(shards, list) or not isinstance(metadata, dict):
            raise SaccadeError(f'{path}: "shards" must be a list and "metadata" a mapping')
        entry = JsonEntry(values, str(path))
        parts = tuple(_shard(shard, path) for shard in shards)
        found = CodeContents(entry.whole("dim", 1), values["dtype"], entry.whole("shard_pictures", 1), metadata, parts)
        if values.get("count") != found.count:
            raise SaccadeError(f"{path}: count is {values.get('count')!r}, but the shards hold {found.count} pictures")
        return found


class CodeStore:
    """A CodeSource over a store folder: `search_codes(queries, CodeStore("codes"))`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.contents = CodeContents.load(self.folder)
        self._ends = [0, *accumulate(shard.pictures for shard in self.contents.shards)]
        self._open: dict[int, tuple[RegionCodes, tuple[str, ...]]] = {}

    def __reduce__(self) -> Any:  # another process maps the files itself
        return CodeStore, (self.folder,)

    def __len__(self) -> int:
        return self.contents.count

    @property
    def dim(self) -> int:
        return self.contents.dim

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.contents.dtype]

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(id for number in range(len(self.contents.shards)) for id in self._shard(number)[1])

    def part(self, first: int, stop: int) -> RegionCodes:
        """Pictures `first` to `stop`; within one shard nothing is copied."""
        if not 0 <= first <= stop <= len(self):
            raise SaccadeError(f"{self.folder} has {len(self):,} pictures: there is no part from {first} to {stop}")
        parts = []
        for number, (begin, end) in enumerate(pairwise(self._ends)):
            if first < end and stop > begin:
                parts.append(self._shard(number)[0].part(max(first, begin) - begin, min(stop, end) - begin))
        return RegionCodes.join(parts) if parts else self._nothing()

    def pick(self, pictures: Int[Tensor, " choice"]) -> RegionCodes:
        """Some pictures in the order given; their rows are copied."""
        ordered, places = torch.unique(pictures, return_inverse=True)
        if len(ordered) and not 0 <= int(ordered[0]) <= int(ordered[-1]) < len(self):
            raise SaccadeError(f"{self.folder} has {len(self):,} pictures, numbered from 0")
        parts = []
        for number, (begin, end) in enumerate(pairwise(self._ends)):
            inside = ordered[(ordered >= begin) & (ordered < end)]
            if len(inside):
                parts.append(self._shard(number)[0].pick(inside - begin))
        found = RegionCodes.join(parts) if parts else self._nothing()
        return found if torch.equal(ordered, pictures) else found.pick(places)

    def verify(self) -> None:
        """Read every shard once and compare its checksum."""
        for number, shard in enumerate(self.contents.shards):
            path = self.folder / shard.file
            if sha256(path) != shard.sha256:
                raise SaccadeError(f"{path}: the checksum differs from {CONTENTS}'s, it was damaged or replaced")
            self._shard(number)

    def _nothing(self) -> RegionCodes:
        bounds = torch.zeros(3, 0) if self.dtype == torch.int8 else None
        vectors = torch.zeros(0, self.dim, dtype=self.dtype)
        return RegionCodes(vectors, torch.zeros(1, dtype=torch.int64), None, bounds)

    def _shard(self, number: int) -> tuple[RegionCodes, tuple[str, ...]]:
        if number not in self._open:
            self._open[number] = self._map(self.contents.shards[number])
        return self._open[number]

    def _map(self, shard: CodeShard) -> tuple[RegionCodes, tuple[str, ...]]:
        path = self.folder / shard.file
        columns = ["vectors", "counts", *(BYTE_COLUMNS if self.dtype == torch.int8 else ())]
        with explain_os_errors(path, "read"):
            try:
                with safetensors.safe_open(path, "pt") as file:
                    found = {name: file.get_tensor(name) for name in columns}  # mapped, not read
                    ids = json.loads(file.metadata()["ids"])
            except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
                raise SaccadeError(f"{path} is damaged, cut short or not a shard of codes: {error}") from error
        vectors, counts = found["vectors"], found["counts"]
        if (
            vectors.dtype != self.dtype
            or vectors.shape != (shard.rows, self.dim)
            or any(found[name].shape != (shard.pictures,) for name in columns[1:])
            or int(counts.min()) < 0
            or int(counts.sum()) != shard.rows
            or len(ids) != shard.pictures
        ):
            raise SaccadeError(f"{path} does not hold what {CONTENTS} says of it")
        bounds = torch.stack([found[name] for name in BYTE_COLUMNS]) if self.dtype == torch.int8 else None
        return replace(RegionCodes.rows(vectors, counts), bounds=bounds), tuple(ids)


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
    if codes.bounds is not None:
        columns |= zip(BYTE_COLUMNS, codes.bounds.clone(), strict=True)
    with atomic_file(path) as temporary:
        with surfaced_os_errors():
            safetensors.torch.save_file(columns, temporary, metadata={"ids": json.dumps(list(ids))})
        digest = sha256(temporary)
    return CodeShard(path.name, len(ids), len(codes.vectors), digest)


def _shard(values: Any, path: Path) -> CodeShard:
    if not isinstance(values, dict):
        raise SaccadeError(
            f"{path}: a shard is {values!r}, a mapping with file, pictures, rows and sha256 was expected"
        )
    entry = JsonEntry(values, str(path))
    shard = CodeShard(entry.text("file"), entry.whole("pictures", 1), entry.whole("rows"), entry.text("sha256"))
    if Path(shard.file).name != shard.file or not shard.file.startswith("codes-"):  # never out of the folder
        raise SaccadeError(f'{path}: the shard file {shard.file!r} must be a name like "codes-00000.safetensors"')
    return shard
