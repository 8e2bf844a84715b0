"""Engines that keep an index: Lance on this machine or on object storage, Qdrant, PostgreSQL with pgvector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.search.engines.base import Candidates, Engine, Kept, Row, index_rows
from saccade.search.index import Index

__all__ = ["Candidates", "Engine", "Kept", "Row", "copy_index", "is_address", "open_engine"]

STORAGE = ("s3://", "gs://", "az://")
ADDRESSES = ("qdrant+http://", "qdrant+https://", "qdrant-edge:", "postgresql://", "postgres://", *STORAGE)


def is_address(place: str) -> bool:
    """Whether it names an engine, and no folder."""
    return str(place).startswith(ADDRESSES)


def open_engine(place: str | Path, kept: Kept | None = None, maxsim: bool = False) -> Engine:
    """An engine by its address, or an index by its folder. With `kept`, which an address alone takes, a new index
    is made there.

    Raises: SaccadeError if it cannot be reached, is in the way, or holds no index.
    """
    address = str(place)
    if address.startswith("qdrant+"):
        from saccade.search.engines.qdrant import open_server

        return open_server(address, kept, maxsim)
    if address.startswith("qdrant-edge:"):
        from saccade.search.engines.qdrant import open_edge

        return open_edge(address, kept, maxsim)
    if address.startswith(("postgresql:", "postgres:")):
        from saccade.search.engines.postgres import PostgresEngine

        return PostgresEngine(address, kept)
    if address.startswith(STORAGE):
        from saccade.search.engines.lance import ObjectStoreEngine

        return ObjectStoreEngine(address, kept)
    if kept is not None:
        raise SaccadeError(f"{address} is a folder: `saccade index` makes an index there")
    from saccade.search.engines.lance import LanceEngine

    return LanceEngine(place)


def copy_index(
    index: Index, address: str, maxsim: bool = False, progress: Callable[[int, int], None] | None = None
) -> int:
    """All rows of an index into a new one elsewhere; how many."""
    total, done = len(index), 0
    with open_engine(address, Kept.of(index), maxsim) as engine:
        for rows in index_rows(index):
            engine.add(rows)
            done += len(rows)
            if progress is not None:
                progress(done, total)
    return done
