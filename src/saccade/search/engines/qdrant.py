"""Qdrant as an engine: a server or cluster by its address, or Qdrant Edge, the same engine within this process.

A picture is a point: the vector `whole` in an HNSW graph, and in the payload its codes (as they are in an index,
base64), boxes, checksum and metadata. With `maxsim` its regions are a multi-vector too, and of four times as many
candidates Qdrant keeps those whose regions fit the words best (MaxSim) before any codes are fetched; it costs two bytes
a number.
"""

from __future__ import annotations

import base64
import importlib
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json, write_json
from saccade.core.hub import first_line
from saccade.search.engines.base import Candidates, Engine, Kept, Row, settings_columns
from saccade.search.engines.conditions import Both, Comparison, Condition, Not, read_condition

WHOLE, REGIONS = "whole", "regions"
CONTENTS = "shard.json"  # of Qdrant Edge
METADATA = "metadata"  # the part of a payload that conditions name
MORE = 4  # times as many candidates as are asked for go through MaxSim
SPACE = uuid.UUID("5d4c4a52-6f0e-5e0b-9d0e-2f6a7c1d9a11")  # of points' ids, which must be numbers or UUIDs
BYTES = ("codes", "boxes", "vector", "thumbnail")


class Points(ABC):
    """What is asked of a collection; `terms` is the module that has Filter, FieldCondition and so on."""

    terms: Any
    maxsim: bool

    @abstractmethod
    def put(self, points: Sequence[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
        """Id, vectors by name, payload."""

    @abstractmethod
    def drop(self, ids: Sequence[str]) -> None: ...

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def nearest(
        self, vector: list[float], limit: int, condition: Any, words: list[list[float]] | None
    ) -> list[tuple[str, float]]:
        """Picture ids and scores."""

    @abstractmethod
    def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]: ...

    @abstractmethod
    def close(self) -> None: ...


class ServerPoints(Points):
    """A collection by `qdrant_client`: of a server, or in memory for tests."""

    def __init__(self, client: Any, name: str, maxsim: bool = False) -> None:
        self.client, self.name, self.maxsim = client, name, maxsim
        self.terms = client_module().models

    def create(self, index: Kept) -> None:
        """A collection without points, and beside it one that holds the settings."""
        terms, kept = self.terms, index.settings.kept
        vectors = {WHOLE: terms.VectorParams(size=kept.vector_dim, distance=terms.Distance.DOT)}
        if self.maxsim:
            vectors[REGIONS] = terms.VectorParams(
                size=kept.dim,
                distance=terms.Distance.DOT,
                datatype=terms.Datatype.FLOAT16,
                multivector_config=terms.MultiVectorConfig(comparator=terms.MultiVectorComparator.MAX_SIM),
                hnsw_config=terms.HnswConfigDiff(m=0),  # only what is found otherwise is compared by it
            )
        self.client.create_collection(self.name, vectors_config=vectors)
        beside = {"x": terms.VectorParams(size=1, distance=terms.Distance.DOT)}
        self.client.create_collection(f"{self.name}-settings", vectors_config=beside)
        payload = {**index.to_json(), "maxsim": self.maxsim}
        point = terms.PointStruct(id=1, vector={"x": [1.0]}, payload=payload)
        self.client.upsert(f"{self.name}-settings", [point], wait=True)

    def read_settings(self) -> dict[str, Any]:
        """What is kept beside the points. Raises: SaccadeError if it is no collection of ours."""
        if not self.client.collection_exists(f"{self.name}-settings"):
            raise SaccadeError(f'Qdrant has no index "{self.name}"')
        found = self.client.retrieve(f"{self.name}-settings", [1], with_payload=True)
        return dict(found[0].payload or {}) if found else {}

    def put(self, points: Sequence[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
        made = [self.terms.PointStruct(id=id, vector=vectors, payload=payload) for id, vectors, payload in points]
        self.client.upsert(self.name, made, wait=True)

    def drop(self, ids: Sequence[str]) -> None:
        self.client.delete(self.name, self.terms.PointIdsList(points=list(ids)), wait=True)

    def count(self) -> int:
        return int(self.client.count(self.name, exact=True).count)

    def nearest(
        self, vector: list[float], limit: int, condition: Any, words: list[list[float]] | None
    ) -> list[tuple[str, float]]:
        given: dict[str, Any] = {"query": vector, "using": WHOLE, "query_filter": condition}
        if words is not None:
            first = self.terms.Prefetch(query=vector, using=WHOLE, limit=MORE * limit, filter=condition)
            given = {"prefetch": first, "query": words, "using": REGIONS}
        found = self.client.query_points(self.name, limit=limit, with_payload=["id"], **given)
        return [(str(point.payload["id"]), float(point.score)) for point in found.points]

    def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        found = self.client.retrieve(self.name, list(ids), with_payload=True)
        return [point.payload or {} for point in found]

    def close(self) -> None:
        self.client.close()


class EdgePoints(Points):
    """A shard of Qdrant Edge in a folder: one process at a time."""

    def __init__(self, folder: Path, kept: Any, maxsim: bool = False) -> None:
        self.terms = edge_module()
        self.maxsim = maxsim
        terms = self.terms
        vectors = {WHOLE: terms.EdgeVectorParams(size=kept.vector_dim, distance=terms.Distance.Dot)}
        if maxsim:
            vectors[REGIONS] = terms.EdgeVectorParams(
                size=kept.dim,
                distance=terms.Distance.Dot,
                datatype=terms.VectorStorageDatatype.Float16,
                multivector_config=terms.MultiVectorConfig(terms.MultiVectorComparator.MaxSim),
                hnsw_config=terms.HnswIndexConfig(m=0, ef_construct=4, full_scan_threshold=10),
            )
        there = (folder / "shard").exists()
        (folder / "shard").mkdir(parents=True, exist_ok=True)
        path = str(folder / "shard")
        self.shard = terms.EdgeShard.load(path) if there else terms.EdgeShard.create(path, terms.EdgeConfig(vectors))

    def put(self, points: Sequence[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
        made = [self.terms.Point(uuid.UUID(id), vectors, payload) for id, vectors, payload in points]
        self.shard.update(self.terms.UpdateOperation.upsert_points(made))

    def drop(self, ids: Sequence[str]) -> None:
        self.shard.update(self.terms.UpdateOperation.delete_points([uuid.UUID(id) for id in ids]))

    def count(self) -> int:
        return int(self.shard.count(self.terms.CountRequest()))

    def nearest(
        self, vector: list[float], limit: int, condition: Any, words: list[list[float]] | None
    ) -> list[tuple[str, float]]:
        terms = self.terms
        whole = terms.Query.Nearest(vector, WHOLE)
        if words is None:
            asked = terms.QueryRequest(limit=limit, query=whole, filter=condition, with_payload=["id"])
        else:
            first = terms.Prefetch(limit=MORE * limit, query=whole, filter=condition)
            asked = terms.QueryRequest(
                limit=limit, query=terms.Query.Nearest(words, REGIONS), prefetches=[first], with_payload=["id"]
            )
        return [(str(point.payload["id"]), float(point.score)) for point in self.shard.query(asked)]

    def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        found = self.shard.retrieve([uuid.UUID(id) for id in ids], True, False)
        return [record.payload or {} for record in found]

    def optimise(self) -> None:
        """Build the graph now."""
        self.shard.optimize()

    def close(self) -> None:
        self.shard.flush()
        self.shard.close()


class QdrantEngine(Engine):
    """An index in a collection."""

    def __init__(self, points: Points, kept: Kept, address: str) -> None:
        self.points, self.settings, self.basis, self.address = points, kept.settings, kept.basis, address
        self.columns = settings_columns(kept.settings)

    @property
    def maxsim(self) -> bool:
        return self.points.maxsim

    def __len__(self) -> int:
        with explained(self.address):
            return self.points.count()

    def add(self, rows: Sequence[Row]) -> None:
        points = []
        for row in rows:
            values = row.packed()
            assert row.code.vector is not None
            vectors: dict[str, Any] = {WHOLE: row.code.vector.astype(np.float32).tolist()}
            if self.maxsim:
                vectors[REGIONS] = (row.code.codes.astype(np.float32) * row.code.scale).tolist()
            coded = {name: base64.b64encode(values.pop(name)).decode() for name in BYTES}
            points.append((point_id(row.id), vectors, {"id": row.id, **values, **coded, METADATA: dict(row.metadata)}))
        with explained(self.address):
            self.points.put(points)

    def delete(self, ids: Sequence[str]) -> None:
        with explained(self.address):
            self.points.drop([point_id(id) for id in ids])

    def search(
        self,
        vectors: Float[np.ndarray, "query dim"],
        count: int,
        where: str = "",
        words: Sequence[Float[np.ndarray, "word dim"]] | None = None,
    ) -> list[Candidates]:
        """With `words`, and if regions are kept as multi-vectors, the candidates are those of the best MaxSim."""
        read = read_condition(where, self.columns)
        condition = None if read is None else as_filter(read, self.points.terms)
        found = []
        for n, vector in enumerate(vectors):
            own = None if words is None or not self.maxsim else np.asarray(words[n], np.float32).tolist()
            with explained(self.address):
                pairs = self.points.nearest(np.asarray(vector, np.float32).tolist(), count, condition, own)
            found.append(Candidates(tuple(id for id, _ in pairs), tuple(score for _, score in pairs)))
        return found

    def fetch(self, ids: Sequence[str]) -> list[Row]:
        with explained(self.address):
            payloads = self.points.payloads([point_id(id) for id in ids])
        found = {}
        for payload in payloads:
            try:
                values = {name: base64.b64decode(payload[name], validate=True) for name in BYTES}
                values |= {name: payload[name] for name in ("scale", "regions", "checksum")}
                id, metadata = str(payload["id"]), dict(payload[METADATA])
            except (KeyError, TypeError, ValueError) as error:
                raise SaccadeError(f"{self.address}: a point is none of this index's ({first_line(error)})") from error
            found[id] = self.unpacked(id, values, metadata)
        return self.ordered(ids, found)

    def close(self) -> None:
        self.points.close()


def point_id(id: str) -> str:
    return str(uuid.uuid5(SPACE, id))


def as_filter(condition: Condition, terms: Any) -> Any:
    """A tree of conditions in Qdrant's terms."""
    if isinstance(condition, Not):
        return terms.Filter(must_not=[as_filter(condition.part, terms)])
    if isinstance(condition, Both):
        parts = [as_filter(part, terms) for part in condition.parts]
        return terms.Filter(should=parts) if condition.any else terms.Filter(must=parts)
    return terms.Filter(must=[_compared(condition, terms)])


def _compared(one: Comparison, terms: Any) -> Any:
    key = f"{METADATA}.{one.column}"
    if one.operator == "null":
        return (
            terms.IsEmptyCondition(is_empty=terms.PayloadField(key=key))
            if hasattr(terms, "PayloadField")
            else (terms.IsEmptyCondition(key))
        )
    number = getattr(terms, "Range", None) or terms.RangeFloat
    if one.operator == "in":
        parts = [_compared(Comparison(one.column, "=", (value,)), terms) for value in one.values]
        return terms.Filter(should=parts)
    (value,) = one.values
    if one.operator in ("=", "!="):
        if isinstance(value, float):
            equal = terms.FieldCondition(key=key, range=number(gte=value, lte=value))
        else:
            equal = terms.FieldCondition(key=key, match=terms.MatchValue(value=value))
        return (
            equal
            if one.operator == "="
            else terms.Filter(must=[terms.Filter(must_not=[equal, _compared(Comparison(one.column, "null"), terms)])])
        )
    if isinstance(value, str | bool):
        raise SaccadeError(f"--where: Qdrant compares numbers by {one.operator}, and {value!r} is none")
    sides = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
    return terms.FieldCondition(key=key, range=number(**{sides[one.operator]: float(value)}))


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn what the library raises into one sentence."""
    try:
        yield
    except (SaccadeError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:  # the client's, httpx's and grpc's are many
        raise SaccadeError(f"{address}: {first_line(error)}") from error


def client_module() -> Any:
    return _module("qdrant_client", "a Qdrant server")


def edge_module() -> Any:
    return _module("qdrant_edge", "Qdrant Edge")


def _module(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SaccadeError(f'{what} needs {name}: pip install "saccade[engines]" brings it') from error


def open_server(address: str, kept: Kept | None = None, maxsim: bool = False) -> QdrantEngine:
    """`qdrant+http://host:6333/NAME`; with `kept` a new collection is made.

    The key of a server that wants one is read from QDRANT_API_KEY.
    """
    found = re.fullmatch(r"qdrant\+(https?://[^/@?#]+)/([\w-]{1,100})", address)
    if found is None:
        raise SaccadeError(f"{address}: qdrant+http://HOST:PORT/NAME was expected")
    with explained(address):
        client = client_module().QdrantClient(url=found[1], api_key=os.environ.get("QDRANT_API_KEY") or None)
    return server_engine(ServerPoints(client, found[2], maxsim), address, kept)


def server_engine(points: ServerPoints, address: str, kept: Kept | None = None) -> QdrantEngine:
    """The index of a collection, or a new one. Raises: SaccadeError if it is in the way, or there is none."""
    with explained(address):
        if kept is None:
            settings = points.read_settings()
            kept, points.maxsim = Kept.from_json(settings, address), bool(settings.get("maxsim"))
        elif points.client.collection_exists(points.name):
            raise SaccadeError(f'{address}: a collection "{points.name}" is there already')
        else:
            points.create(kept)
    return QdrantEngine(points, kept, address)


def open_edge(address: str, kept: Kept | None = None, maxsim: bool = False) -> QdrantEngine:
    """`qdrant-edge:FOLDER`; with `kept` a new shard is made in a folder that is not there."""
    folder = Path(address.partition(":")[2]).expanduser()
    with explained(address):
        if kept is None:
            if not (folder / CONTENTS).is_file():
                raise SaccadeError(f"{folder} holds no shard of an index: it has no {CONTENTS}")
            settings = read_json(folder / CONTENTS)
            kept, maxsim = Kept.from_json(settings, str(folder / CONTENTS)), bool(settings.get("maxsim"))
        else:
            if folder.exists():
                raise SaccadeError(f"{folder} is in the way: a new shard needs a folder that is not there")
            folder.mkdir(parents=True)
            write_json(folder / CONTENTS, {**kept.to_json(), "maxsim": maxsim})
        return QdrantEngine(EdgePoints(folder, kept.settings.kept, maxsim), kept, address)
