"""What an engine must do for a search in two stages, whoever keeps the rows.

    add      rows, new or in the place of those with their ids
    delete   rows by id
    search   candidates by the vectors of whole pictures, under a condition
    fetch    the codes, boxes and metadata of the candidates, in the order asked for

The model's own score of the candidates is ours (`engines/searcher.py`). An engine keeps the settings of the index too,
so that its address is all that a search needs.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.core.config import from_dict
from saccade.core.errors import SaccadeError
from saccade.search.coding import Encoded
from saccade.search.index import Index, IndexSettings, check_column, damage
from saccade.search.table import HIDDEN, checksum, schema

ADDED = 256  # rows that go to an engine at once


@dataclass(frozen=True)
class Row:
    """A picture as an engine keeps it; values of `metadata` are texts, numbers, booleans or lists of texts."""

    id: str
    code: Encoded
    metadata: Mapping[str, Any] = field(default_factory=dict)
    thumbnail: bytes = b""  # a JPEG

    def packed(self) -> dict[str, Any]:
        """Codes and boxes as bytes, with a checksum: what comes back from elsewhere is compared with it."""
        code = self.code
        vector = b"" if code.vector is None else code.vector.tobytes()
        raw, boxes = code.codes.tobytes(), code.boxes.tobytes()
        return {
            "codes": raw,
            "scale": float(np.float32(code.scale)),
            "regions": len(code.codes),
            "boxes": boxes,
            "vector": vector,
            "thumbnail": self.thumbnail,
            "checksum": checksum(self.id, raw, code.scale, boxes, vector),
        }


@dataclass(frozen=True)
class Candidates:
    """What the first stage found, best first."""

    ids: tuple[str, ...]
    scores: tuple[float, ...]


class Engine(ABC):
    """`open_engine(address)` gives one; leaving its `with` block closes it."""

    address: str  # without passwords
    settings: IndexSettings
    basis: Tensor | None = None  # of the subspace in which codes are kept, where they are
    columns: Sequence[str]  # that a condition may name

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def add(self, rows: Sequence[Row]) -> None: ...

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None: ...

    @abstractmethod
    def search(self, vectors: Float[np.ndarray, "query dim"], count: int, where: str = "") -> list[Candidates]:
        """The rows whose vectors have the largest product with each query's."""

    @abstractmethod
    def fetch(self, ids: Sequence[str]) -> list[Row]:
        """Raises: SaccadeError if one is not there, or not what was stored."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and locks."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def unpacked(self, id: str, values: Mapping[str, Any], metadata: Mapping[str, Any]) -> Row:
        """A row from its bytes. Raises: SaccadeError if they are not those that were stored."""
        kept = self.settings.kept
        reason = damage({"id": id, **values}, kept, values["vector"])
        if reason is None and len(values["vector"]) != 2 * kept.vector_dim:
            reason = f"a vector of {len(values['vector'])} bytes"
        if reason is not None:
            raise SaccadeError(f'{self.address}: "{id}": {reason}')
        kind = np.int8 if kept.codes == "int8" else np.float16
        codes = np.frombuffer(values["codes"], kind).reshape(-1, kept.dim)
        boxes = np.frombuffer(values["boxes"], np.float32).reshape(-1, 4)
        vector = np.frombuffer(values["vector"], np.float16) if kept.vector_dim else None
        return Row(id, Encoded(codes, values["scale"], boxes, vector), metadata, bytes(values["thumbnail"] or b""))

    def ordered(self, ids: Sequence[str], found: Mapping[str, Row]) -> list[Row]:
        """Raises: SaccadeError if one is missing."""
        for id in ids:
            if id not in found:
                raise SaccadeError(f'{self.address}: "{id}" is not there, or no longer')
        return [found[id] for id in ids]


@dataclass(frozen=True, eq=False)
class Kept:
    """What an engine keeps of an index beside its rows."""

    settings: IndexSettings
    basis: Tensor | None = None

    @staticmethod
    def of(index: Index) -> Kept:
        check_settings(index.settings)
        return Kept(index.settings, index.basis)

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"settings": asdict(self.settings)}
        if self.basis is not None:
            numbers = self.basis.cpu().numpy().astype(np.float32)
            made["basis"] = {"shape": list(numbers.shape), "data": base64.b64encode(numbers.tobytes()).decode()}
        return made

    @staticmethod
    def from_json(values: Any, where: str) -> Kept:
        """Raises: SaccadeError if this describes no index, or is damaged."""
        settings = values.get("settings") if isinstance(values, Mapping) else None
        if not isinstance(settings, Mapping) or not isinstance(settings.get("extra", {}), Mapping):
            raise SaccadeError(f"{where} holds no index of Saccade")
        extra = {str(name): str(kind) for name, kind in settings.get("extra", {}).items()}
        for name, kind in extra.items():
            check_column(name, kind)
        given = {name: value for name, value in settings.items() if name != "extra"}
        settings = replace(from_dict(IndexSettings, given, where), extra=extra)
        check_settings(settings)
        if not settings.kept.reduced:
            return Kept(settings)
        try:
            raw = base64.b64decode(values["basis"]["data"], validate=True)
            rows, columns = (int(side) for side in values["basis"]["shape"])
            basis = torch.from_numpy(np.frombuffer(raw, np.float32).reshape(rows, columns).copy())
        except (KeyError, TypeError, ValueError) as error:
            raise SaccadeError(f"{where}: the basis of its codes is damaged") from error
        if columns + 1 != settings.kept.dim or not bool(basis.isfinite().all()):
            raise SaccadeError(f"{where}: the basis of its codes is damaged")
        return Kept(settings, basis)


def check_settings(settings: IndexSettings) -> None:
    """Raises: SaccadeError if the model has no vector for whole pictures."""
    if not settings.kept.vector_dim:
        raise SaccadeError(f"{settings.model} has no vector of whole pictures, by which an engine finds candidates")


def index_rows(index: Index, size: int = ADDED) -> Iterator[list[Row]]:
    """The rows of an index on this machine, some at a time, compared with their checksums."""
    kept = index.settings.kept
    names = [*index.metadata_columns, "codes", "scale", "boxes", "checksum", "vector", "thumbnail"]
    for batch in index.table.batches(list(dict.fromkeys(names)), size):
        rows = []
        for values in batch.to_pylist():
            vector = np.asarray(values["vector"], np.float16)
            if (reason := damage(values, kept, vector.tobytes())) is not None:
                raise SaccadeError(f'{index.folder}: "{values["id"]}": {reason}')
            kind = np.int8 if kept.codes == "int8" else np.float16
            code = Encoded(
                np.frombuffer(values["codes"], kind).reshape(-1, kept.dim),
                values["scale"],
                np.frombuffer(values["boxes"], np.float32).reshape(-1, 4),
                vector,
            )
            metadata = {name: plain(values[name]) for name in index.metadata_columns if name not in (*HIDDEN, "id")}
            rows.append(Row(values["id"], code, metadata, values["thumbnail"] or b""))
        yield rows


def settings_columns(settings: IndexSettings) -> list[str]:
    """What a condition may name."""
    return [name for name in schema(1, settings.extra).names if name not in (*HIDDEN, "id")]


def plain(value: Any) -> Any:
    """A value as JSON has it: times become texts that sort as they do."""
    return value.isoformat() if hasattr(value, "isoformat") else value
