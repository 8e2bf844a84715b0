"""The same pictures in three engines, and in parts on a Ray cluster: docs/results/engines.md.

    python -m benchmarks.search_engines STORE… --sentences captions.txt --work FOLDER

The pictures are those of `benchmarks.search_index`. Every engine gives candidates by its own search over the vectors of
whole pictures, hands back their codes, and the model scores them here. Qdrant runs in this process (Qdrant Edge, the
server's own engine as a library), PostgreSQL is the server that PyPI's pgserver carries, on a socket.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.search_index import MODEL, NOISE, base_codes, fill
from saccade.core.files import write_json, write_text
from saccade.data import FeatureStore
from saccade.search.engines import Engine, Kept, open_engine
from saccade.search.engines.base import index_rows
from saccade.search.engines.lance import LanceEngine
from saccade.search.engines.qdrant import QdrantEngine
from saccade.search.engines.searcher import EngineSearcher
from saccade.search.index import Index
from saccade.search.query import Query
from saccade.search.searcher import Searcher
from saccade.search.sharded import RaySearcher

CANDIDATES, TOP = 64, 10
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "engines.md"
NAMES = {
    "lance": "Lance, all vectors in memory",
    "qdrant": "Qdrant, HNSW",
    "pgvector": "PostgreSQL, pgvector's HNSW",
}


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@contextmanager
def engines(index: Path, work: Path) -> Iterator[Iterator[tuple[str, Engine, float, Path]]]:
    """Each engine filled with the index: its name, itself, the seconds it took, and where its files are."""
    import pgserver

    server = pgserver.get_server(work / "postgres")
    table = f"{server.get_uri()}{'&' if '?' in server.get_uri() else '?'}table=photos"

    def each() -> Iterator[tuple[str, Engine, float, Path]]:
        yield "lance", LanceEngine(index), 0.0, index
        for name, address, folder in (
            ("qdrant", f"qdrant-edge:{work / 'qdrant'}", work / "qdrant"),
            ("pgvector", table, work / "postgres"),
        ):
            started = time.perf_counter()
            with Index.open(index) as opened:
                engine = open_engine(address, Kept.of(opened))
                for rows in index_rows(opened):
                    engine.add(rows)
            if isinstance(engine, QdrantEngine):
                engine.points.optimise()  # type: ignore[attr-defined]
            yield name, engine, time.perf_counter() - started, folder
            engine.close()

    try:
        yield each()
    finally:
        server.cleanup()


def timed(run: Any, times: int) -> tuple[list[Any], float]:
    """Results, and the median of milliseconds."""
    found, took = [], []
    for n in range(times):
        started = time.perf_counter()
        found.append(run(n))
        took.append(1000 * (time.perf_counter() - started))
    return found, float(np.median(took))


def share(wanted: Sequence[set[str]], found: Sequence[Sequence[str]]) -> float:
    """How much of what was wanted is among what was found."""
    return float(np.mean([len(own & set(ids)) / len(own) for own, ids in zip(wanted, found, strict=True)]))


@torch.no_grad()
def compare(index: Path, work: Path, sentences: Sequence[str]) -> dict[str, Any]:
    """Each engine's time and recall: of its own search, and of the whole query."""
    with Index.open(index) as opened:
        searcher = Searcher(opened)
        snapshot = opened.snapshot()
        scores = searcher.table(list(sentences))
        best = [{snapshot.ids[n] for n in own.tolist()} for own in scores.topk(TOP, dim=0).indices.T]
        asked, _, codes = searcher._read([Query(text) for text in sentences])
        wanted = searcher._wanted(asked, codes).float()
        assert snapshot.vectors is not None
        near = (wanted @ snapshot.vectors.float().T).topk(CANDIDATES, dim=1).indices
        nearest = [{snapshot.ids[n] for n in own.tolist()} for own in near]
        pictures, matcher = len(snapshot.ids), searcher.matcher
    vectors, found = wanted.numpy(), dict[str, Any]()
    with engines(index, work) as filled:
        for name, engine, seconds, folder in filled:
            engine.search(vectors[:1], CANDIDATES)  # what is read once
            chosen, candidates_ms = timed(lambda n: engine.search(vectors[n : n + 1], CANDIDATES)[0], len(sentences))  # noqa: B023
            few = min(20, len(sentences))
            _, filtered_ms = timed(lambda n: engine.search(vectors[n : n + 1], CANDIDATES, "year >= 2020"), few)  # noqa: B023
            whole = (  # an index on this machine is searched as one
                Searcher(engine.index, matcher) if isinstance(engine, LanceEngine) else EngineSearcher(engine, matcher)
            )
            whole.search(Query(sentences[0], top=TOP, candidates=CANDIDATES))
            query = Query(top=TOP, candidates=CANDIDATES)
            answers, query_ms = timed(lambda n: whole.search(replace(query, text=sentences[n])), len(sentences))  # noqa: B023
            found[name] = {
                "seconds": seconds,
                "bytes": size_of(folder) / pictures,
                "candidates_ms": candidates_ms,
                "filtered_ms": filtered_ms,
                "nearest": float(
                    np.mean([len(own & set(c.ids)) / CANDIDATES for own, c in zip(nearest, chosen, strict=True)])
                ),
                "query_ms": query_ms,
                "recall": float(
                    np.mean([len(b & {h.id for h in a.hits}) / TOP for b, a in zip(best, answers, strict=True)])
                ),
            }
            print(name, found[name], flush=True)
    return {"pictures": pictures, "queries": len(sentences), "engines": found}


class Killing(RaySearcher):
    """Part 3 is stopped before it is asked, and killed while the question waits."""

    def _ask(self, shard: int, queries: Sequence[Query], version: int) -> tuple[Any, Any]:
        if shard != 2 or getattr(self, "killed", False):
            return super()._ask(shard, queries, version)
        self.killed = True
        pid = self.ray.get(self.actors[shard].pid.remote())
        os.kill(pid, signal.SIGSTOP)
        asked = super()._ask(shard, queries, version)
        os.kill(pid, signal.SIGKILL)
        return asked


def sharded(index: Path, sentences: Sequence[str]) -> dict[str, Any]:
    """Every picture scored by one process and by four, one of which is killed while it is asked."""
    asked = [Query(text, top=TOP, exact=True) for text in sentences]
    with Index.open(index) as opened:
        one = Searcher(opened)
        one.search(asked[0])
        expected, alone_ms = timed(lambda n: one.search(asked[n]), len(asked))
        pictures = len(opened)
    with Killing(index, shards=4) as searcher:
        started = time.perf_counter()
        first = searcher.search(asked[0])
        killed_s = time.perf_counter() - started
        found, parts_ms = timed(lambda n: searcher.search(asked[n]), len(asked))
    answers = [first, *found]
    known = [expected[0], *expected]
    off = [
        abs(hit.score - other.score)
        for a, b in zip(answers, known, strict=True)
        for hit, other in zip(a.hits, b.hits, strict=True)
    ]
    same = [{h.id for h in a.hits} == {h.id for h in b.hits} for a, b in zip(answers, known, strict=True)]
    return {
        "pictures": pictures,
        "queries": len(asked),
        "alone_ms": alone_ms,
        "parts_ms": parts_ms,
        "killed_s": killed_s,
        "off": max(off),
        "same": sum(same),
        "answers": len(answers),
        "missing": sum(len(a.missing) for a in answers),
    }


def page(found: dict[str, Any]) -> str:
    one, parts = found["engines"], found.get("ray")
    lines = [HEAD.format(**found["versions"], made=found["made"], cores=found["cores"], **one), TABLE]
    for name, row in one["engines"].items():
        filled = f"{one['pictures'] / row['seconds']:,.0f}" if row["seconds"] else "–"
        own = (f"{row['candidates_ms']:.1f}", f"{row['nearest']:.3f}", f"{row['filtered_ms']:.1f}")
        whole = (f"{row['query_ms']:.1f}", f"{row['recall']:.3f}")
        lines.append("| " + " | ".join((NAMES[name], filled, f"{row['bytes'] / 1e3:.1f}", *own, *whole)) + " |")
    if found.get("note"):  # what a reader must know of this run, written by hand
        lines.append(f"\n{found['note']}")
    return "\n".join(lines) + "\n" + ("" if parts is None else RAY.format(**parts))


HEAD = """# Engines

*Written by `python -m benchmarks.search_engines`, on {cores} cores: {pictures:,} pictures made
from the codes of Flickr8k's photos ({made}), {queries} captions; qdrant-edge-py
{qdrant}, PostgreSQL 16 with pgvector 0.6 of pgserver {pgserver}.*

An index may be kept [by an engine elsewhere](../engines.md). It gives 64 candidates by its own search over the vectors
of whole pictures and hands back their [codes](../glossary.md#code), which the [matcher](../glossary.md#matcher) scores
here. *Nearest* is the share of the 64 pictures nearest by vector that are among the engine's 64; *recall@10* the share
of the best ten of all pictures, by the matcher's own score, that are among the ten found. Qdrant runs within the
process, so that no network is in its figures; PostgreSQL's are over a local socket. Lance's rows were there before.
"""
TABLE = (
    "| engine | rows taken in a second | KB a picture on disk | candidates, ms | nearest | with a filter, ms | "
    "whole query, ms | recall@10 |\n|---|---|---|---|---|---|---|---|"
)
RAY = """
## Parts on a Ray cluster

{pictures:,} pictures, every one scored: one process {alone_ms:,.0f} ms a query, four that each hold a part, on the same
cores, {parts_ms:,.0f} ms. Of the four, one was killed (SIGKILL) while the first query waited for it: the answer came
after {killed_s:.0f} s, the start of five processes included, {missing} parts were missing, and {same} of
{answers} answers have the pictures of one process, their scores at most {off:.1g} apart.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", type=Path, nargs="+")
    parser.add_argument("--sentences", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="a folder that is not there, with room for 20 GB")
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--ray-pictures", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--indices", type=Path, help="a folder with the indices large and small of an earlier run")
    parser.add_argument("--no-page", action="store_true")
    given = parser.parse_args()
    given.work.mkdir(parents=True)
    sentences = given.sentences.read_text(encoding="utf-8").splitlines()[: given.queries]
    found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
    found["made"] = f"noise of {NOISE:g} of a code's length on each"
    found["versions"] = {"qdrant": version("qdrant-edge-py"), "pgserver": version("pgserver")}
    stores = [FeatureStore.open(store) for store in given.stores]
    torch.set_num_threads(found["cores"])
    try:
        base, made = None, given.indices or given.work
        sizes = {"large": given.pictures, "small": given.ray_pictures} if given.indices is None else {}
        for name, count in sizes.items():
            with Index.create(given.work / name, MODEL) as index:
                base = base_codes(index, stores) if base is None else base
                fill(index, base, count)
        found["engines"] = compare(made / "large", given.work, sentences)
        found["ray"] = sharded(made / "small", sentences[:10])
    finally:
        shutil.rmtree(given.work, ignore_errors=True)
    print(page(found))
    if not given.no_page:
        write_json(PAGE.with_suffix(".json"), found)
        write_text(PAGE, page(found))


if __name__ == "__main__":
    main()
