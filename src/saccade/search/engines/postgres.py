"""PostgreSQL with pgvector as an engine: `postgresql://user@host/database?table=NAME`.

A picture is a row: its vector under an HNSW index by inner product, its codes and boxes as bytes, its metadata as JSON.
The settings of the index are in a table beside it. Values reach the server as parameters alone.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np
from jaxtyping import Float

from saccade.core.errors import SaccadeError
from saccade.core.hub import first_line
from saccade.search.engines.base import Candidates, Engine, Kept, Row, settings_columns
from saccade.search.engines.conditions import Both, Comparison, Condition, Not, read_condition

MAX_INDEXED_DIM = 2000  # pgvector's HNSW takes no longer vectors
EF_SEARCH = 200, 1000  # how many neighbours are looked at: at least, and what pgvector allows
FIELDS = ("codes", "scale", "regions", "boxes", "vector", "checksum", "thumbnail")


class PostgresEngine(Engine):
    """An index in a table."""

    def __init__(self, address: str, kept: Kept | None = None) -> None:
        psycopg = _psycopg()
        self.sql: Any = psycopg.sql
        uri, table = split_address(address)
        self.address = hidden_password(address)
        self.table, self.beside = self.sql.Identifier(table), self.sql.Identifier(f"{table}_settings")
        with self._explained():
            self.connection = psycopg.connect(uri, autocommit=True, connect_timeout=10)
        try:
            with self._explained():
                found = self._create(kept) if kept is not None else self._read_settings(table)
        except BaseException:
            self.connection.close()
            raise
        self.settings, self.basis, self.columns = found.settings, found.basis, settings_columns(found.settings)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (SaccadeError, KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:  # psycopg's own, by the dozen
            raise SaccadeError(f"{self.address}: {first_line(error)}") from error

    def _run(self, query: str, values: Sequence[Any] = (), **names: Any) -> Any:
        """A statement; `{table}` and other names in braces are identifiers, `%s` are values."""
        text = self.sql.SQL(query).format(table=self.table, beside=self.beside, **names)
        return self.connection.execute(text, values or None)

    def _create(self, kept: Kept) -> Kept:
        wide = kept.settings.kept.vector_dim
        with self.connection.transaction():
            self._run("CREATE EXTENSION IF NOT EXISTS vector")
            self._run(
                "CREATE TABLE {table} (id text PRIMARY KEY, vector vector({dim}) NOT NULL, codes bytea NOT NULL, "
                "scale real NOT NULL, regions integer NOT NULL, boxes bytea NOT NULL, vector_bytes bytea NOT NULL, "
                "checksum bigint NOT NULL, thumbnail bytea NOT NULL, metadata jsonb NOT NULL)",
                dim=self.sql.Literal(wide),
            )
            self._run("ALTER TABLE {table} ALTER COLUMN codes SET STORAGE EXTERNAL")  # bytes do not get smaller
            self._run("CREATE TABLE {beside} (settings jsonb NOT NULL)")
            self._run("INSERT INTO {beside} VALUES (%s)", [json.dumps(kept.to_json())])
            if wide <= MAX_INDEXED_DIM:
                self._run("CREATE INDEX ON {table} USING hnsw (vector vector_ip_ops)")
        return kept

    def _read_settings(self, table: str) -> Kept:
        names = [f'"{table}"', f'"{table}_settings"']
        if None in self._run("SELECT to_regclass(%s), to_regclass(%s)", names).fetchone():
            raise SaccadeError(f'{self.address} holds no index of Saccade in a table "{table}"')
        return Kept.from_json((self._run("SELECT settings FROM {beside}").fetchone() or [None])[0], self.address)

    def __len__(self) -> int:
        with self._explained():
            return int(self._run("SELECT count(*) FROM {table}").fetchone()[0])

    def add(self, rows: Sequence[Row]) -> None:
        with self._explained(), self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.executemany(
                self.sql.SQL(
                    "INSERT INTO {table} (id, vector, codes, scale, regions, boxes, vector_bytes, checksum, "
                    "thumbnail, metadata) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) "
                    "DO UPDATE SET vector = EXCLUDED.vector, codes = EXCLUDED.codes, scale = EXCLUDED.scale, "
                    "regions = EXCLUDED.regions, boxes = EXCLUDED.boxes, vector_bytes = EXCLUDED.vector_bytes, "
                    "checksum = EXCLUDED.checksum, thumbnail = EXCLUDED.thumbnail, metadata = EXCLUDED.metadata"
                ).format(table=self.table),
                [self._values(row) for row in rows],
            )

    @staticmethod
    def _values(row: Row) -> list[Any]:
        values = row.packed()
        assert row.code.vector is not None
        numbers = [values[name] for name in FIELDS]
        return [row.id, written(row.code.vector), *numbers, json.dumps(dict(row.metadata))]

    def delete(self, ids: Sequence[str]) -> None:
        with self._explained():
            self._run("DELETE FROM {table} WHERE id = ANY(%s)", [list(ids)])

    def search(self, vectors: Float[np.ndarray, "query dim"], count: int, where: str = "") -> list[Candidates]:
        read = read_condition(where, self.columns)
        clause, values = ("TRUE", list[Any]()) if read is None else as_sql(read)
        with self._explained():
            return [self._nearest(written(vector), count, clause, values) for vector in vectors]

    def _nearest(self, vector: str, count: int, clause: str, values: list[Any]) -> Candidates:
        """By the graph; a condition is applied to what the graph found, and where that leaves too few, to all rows."""
        query = (
            f"SELECT id, -(vector <#> %s::vector) FROM {{table}} WHERE {clause} ORDER BY vector <#> %s::vector LIMIT %s"
        )
        given = [vector, *values, vector, count]
        near = self.sql.Literal(min(max(EF_SEARCH[0], 2 * count), EF_SEARCH[1]))
        with self.connection.transaction():
            self._run("SET LOCAL hnsw.ef_search = {near}", near=near)
            found = self._run(query, given).fetchall()
            if len(found) < count:
                self._run("SET LOCAL enable_indexscan = off")
                found = self._run(query, given).fetchall()
        return Candidates(tuple(id for id, _ in found), tuple(float(score) for _, score in found))

    def fetch(self, ids: Sequence[str]) -> list[Row]:
        with self._explained():
            rows = self._run(
                "SELECT id, codes, scale, regions, boxes, vector_bytes, checksum, thumbnail, metadata FROM {table} "
                "WHERE id = ANY(%s)",
                [list(ids)],
            ).fetchall()
        found = {}
        for id, *values, metadata in rows:
            named = dict(zip(FIELDS, values, strict=True))
            found[id] = self.unpacked(id, named, metadata)
        return self.ordered(ids, found)

    def close(self) -> None:
        self.connection.close()


def written(vector: np.ndarray) -> str:
    """As pgvector reads it."""
    return "[" + ",".join(f"{number:.9g}" for number in np.asarray(vector, np.float32).tolist()) + "]"


def as_sql(condition: Condition) -> tuple[str, list[Any]]:
    """A clause without any word of the user's, and its values."""
    if isinstance(condition, Not):
        clause, values = as_sql(condition.part)
        return f"NOT ({clause})", values
    if isinstance(condition, Both):
        parts = [as_sql(part) for part in condition.parts]
        joined = (" OR " if condition.any else " AND ").join(f"({clause})" for clause, _ in parts)
        return joined, [value for _, values in parts for value in values]
    return _compared(condition)


def _compared(one: Comparison) -> tuple[str, list[Any]]:
    if one.operator == "null":
        return "(metadata ->> %s) IS NULL", [one.column]
    if one.operator == "in":
        parts = [_compared(Comparison(one.column, "=", (value,))) for value in one.values]
        return " OR ".join(clause for clause, _ in parts), [value for _, values in parts for value in values]
    (value,) = one.values
    sign = "<>" if one.operator == "!=" else one.operator
    if isinstance(value, bool):
        return f"(metadata ->> %s)::boolean {sign} %s", [one.column, value]
    if isinstance(value, str):
        if one.operator in ("=", "!="):  # of a list, whether it holds the text
            own = "(metadata -> %s) @> %s::jsonb"
            held = own if one.operator == "=" else f"((metadata ->> %s) IS NOT NULL AND NOT {own})"
            names = [one.column] if one.operator == "=" else [one.column, one.column]
            return held, [*names, json.dumps(value)]
        return f'(metadata ->> %s) COLLATE "C" {sign} %s', [one.column, value]
    number = "CASE WHEN jsonb_typeof(metadata -> %s) = 'number' THEN (metadata ->> %s)::double precision END"
    return f"({number}) {sign} %s", [one.column, one.column, float(value)]


def split_address(address: str) -> tuple[str, str]:
    """The server's address without `table`, and the table. Raises: SaccadeError if no table is named."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    table = options.pop("table", "")
    if not re.fullmatch(r"[A-Za-z_]\w{0,50}", table):
        raise SaccadeError(f"{hidden_password(address)}: postgresql://user@host/database?table=NAME was expected")
    return urlunsplit(parts._replace(query=urlencode(options))), table


def hidden_password(address: str) -> str:
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", address)


def _psycopg() -> Any:
    try:
        return importlib.import_module("psycopg")
    except ImportError as error:
        raise SaccadeError('a PostgreSQL server needs psycopg: pip install "saccade[engines]" brings it') from error
