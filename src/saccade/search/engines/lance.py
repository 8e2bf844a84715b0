"""Lance as an engine: the index on this machine, or in a folder that several machines see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from saccade.search.engines.base import Candidates, Engine, Row, check_settings, plain
from saccade.search.exact import top_k
from saccade.search.index import CODE_COLUMNS, Index


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


def _typed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Times as Lance keeps them."""
    taken = metadata.get("taken")
    return {**metadata, "taken": datetime.fromisoformat(taken) if isinstance(taken, str) else taken}
