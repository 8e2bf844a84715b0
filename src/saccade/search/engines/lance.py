"""Lance as an engine: the index on this machine, in a folder that several machines see, or on object storage.

On object storage (`s3://bucket/photos`, `gs://`, `az://`) lie the same table and one with the settings. All vectors are
read when it is opened, so that a search fetches the codes of its candidates and nothing else. There are no locks there:
of several writers, it is theirs to write one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.search.engines.base import Candidates, Engine, Kept, Row, check_settings, plain
from saccade.search.exact import top_k
from saccade.search.index import CODE_COLUMNS, Index, check_schema
from saccade.search.table import NAME, Rows, explained, import_lancedb, schema

SETTINGS = "settings"  # the table beside the pictures'


class LanceEngine(Engine):
    """An `Index`. Its vectors are in memory, and the first stage is one product with all of them."""

    def __init__(self, folder: Path | str, write: bool = False) -> None:
        self.index = Index.open(folder, write=write)
        self.address, self.settings, self.basis = str(folder), self.index.settings, self.index.basis
        check_settings(self.settings)
        self.columns = self.index.metadata_columns

    def __len__(self) -> int:
        return len(self.index)

    def add(self, rows: Sequence[Row]) -> None:
        values = [{"id": row.id, **_typed(row.metadata), "thumbnail": row.thumbnail} for row in rows]
        self.index.put(values, [row.code for row in rows])

    def delete(self, ids: Sequence[str]) -> None:
        self.index.delete(ids)

    def search(self, vectors: Float[np.ndarray, "query dim"], count: int, where: str = "") -> list[Candidates]:
        snapshot = self.index.snapshot()
        assert snapshot.vectors is not None
        table = (snapshot.vectors @ torch.from_numpy(vectors).to(snapshot.vectors.dtype).T).float().T
        allowed = np.arange(len(snapshot.ids))
        if where.strip():
            allowed = np.flatnonzero(np.isin(snapshot.row_ids, self.index.table.where_row_ids(where)))
        found = top_k(table[:, torch.from_numpy(allowed)], min(count, len(allowed)))
        return [
            Candidates(tuple(snapshot.ids[allowed[n]] for n in own.tolist()), tuple(scores.tolist()))
            for own, scores in zip(found.indices, found.scores, strict=True)
        ]

    def fetch(self, ids: Sequence[str]) -> list[Row]:
        names = [*dict.fromkeys([*self.columns, *CODE_COLUMNS, "vector", "thumbnail"])]
        found = {}
        for values in self.index.rows(ids, names):
            metadata = {name: plain(values[name]) for name in self.columns if name != "id"}
            vector = np.asarray(values["vector"], np.float16).tobytes()
            found[values["id"]] = self.unpacked(values["id"], {**values, "vector": vector}, metadata)
        return self.ordered(ids, found)

    def close(self) -> None:
        self.index.close()


class ObjectStoreEngine(LanceEngine):
    """An index on object storage, by its address; keys are read from the environment, as the storage's tools do."""

    def __init__(self, address: str, kept: Kept | None = None) -> None:
        lancedb = import_lancedb()
        self.address = address.rstrip("/")
        with explained(self.address, "cannot be reached"):
            storage = lancedb.connect(self.address)
            there = storage.list_tables().tables
        if kept is None:
            if not {NAME, SETTINGS} <= {*there}:
                raise SaccadeError(f"{self.address} holds no index of Saccade")
        elif there:
            raise SaccadeError(f"{self.address} is in the way: a new index needs a place that holds nothing")
        else:
            self._create(storage, kept)
        with explained(self.address, "cannot be read"):
            told = storage.open_table(SETTINGS).search().limit(1).to_list()
            table = storage.open_table(NAME)
        found = Kept.from_json(read_settings(told, self.address), self.address)
        self.settings, self.basis = found.settings, found.basis
        self.index = Index(Path(self.address), found.settings, Rows(self.address, table, write=True))
        check_schema(self.index)
        self.columns = self.index.metadata_columns

    def _create(self, storage: Any, kept: Kept) -> None:
        """The settings last: a place with them has a table."""
        with explained(self.address, "cannot be written"):
            columns = schema(kept.settings.kept.vector_dim, kept.settings.extra)
            storage.create_table(NAME, schema=columns).set_unenforced_primary_key("id")
            storage.create_table(SETTINGS, [{"settings": json.dumps(kept.to_json())}])


def read_settings(rows: Sequence[Mapping[str, Any]], address: str) -> Any:
    """Raises: SaccadeError if the table beside the pictures' holds no settings."""
    try:
        return json.loads(rows[0]["settings"])
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise SaccadeError(f"{address}: the settings of its index are damaged") from error


def _typed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Times as Lance keeps them."""
    taken = metadata.get("taken")
    return {**metadata, "taken": datetime.fromisoformat(taken) if isinstance(taken, str) else taken}
