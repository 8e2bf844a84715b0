"""Kill a writer of an index at random moments, and look each time whether anything acknowledged was lost.

    python scripts/kill_index.py --kills 200

A process adds, changes and deletes rows and compacts the table, in an order drawn at random, and prints each change
once the index has acknowledged it. It is killed by SIGKILL after a random time; then the index is opened, every row is
compared with its checksum and with what was acknowledged, and the next writer starts. A change that was under way when
the kill came may be there or not, but whole. In the end the index is compacted without grace and compared with a new
one of the same rows: what kills leave must not make it grow for good.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what is killed imports it itself
    from saccade.search.index import Index

WRITERS = """
import os, random, sys
from kill_index import steps
from saccade.search.index import Index
import lancedb

print("ready", flush=True)
for line in sys.stdin:  # each a writer of its own: a fork, since to import everything anew takes seconds
    folder, seed, first = line.split("\\t")
    pid = os.fork()
    if pid == 0:
        index = Index.open(folder, write=True)
        print(os.getpid(), flush=True)
        steps(index, random.Random(int(seed)), int(first))
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""
DIM, REGIONS = 32, 6


@dataclass(frozen=True)
class Report:
    kills: int
    by_change: dict[str, int]  # what was under way when the kill came
    acknowledged: int
    lost: int
    problems: int  # rows damaged, twice there, or of a state that nobody wrote
    pictures: int
    bytes_after: int  # of the folder after the last kill
    bytes_live: int  # … after a compaction without grace
    bytes_fresh: int  # of a new index with the same rows
    seconds: float


def row_of(id: str, stamp: int) -> tuple[dict[str, object], object]:
    """A row whose codes say which change wrote it."""
    import numpy as np
    import torch

    from saccade.search.coding import CodeFormat, packed

    kept = CodeFormat(DIM, "int8", "mean", DIM)
    codes = torch.full((REGIONS, DIM), 0.01) + torch.arange(REGIONS)[:, None] * 0.1 + (stamp % 97) * 0.001
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (REGIONS, 1))
    row = {"id": id, "kind": "photo", "source": "", "path": "", "size": stamp, "mtime": stamp, "hash": str(stamp)}
    return {**row, "thumbnail": bytes(2000)}, packed(codes, boxes, codes.mean(dim=0), kept, id)


def create(folder: Path) -> None:
    """An index without a model: what is killed is the table."""
    from saccade.search.coding import CodeFormat
    from saccade.search.index import IndexSettings
    from saccade.search.table import Table, schema

    settings = IndexSettings("none", CodeFormat(DIM, "int8", "mean", DIM))
    folder.mkdir(parents=True)
    Table.create(folder, schema(DIM))
    settings.save(folder)


def steps(index: Index, draw: random.Random, stamp: int) -> None:
    """Change the index without end: each line on standard output is a change that begins, or that was acknowledged."""
    known = set(index.snapshot().ids)
    while True:
        stamp += 1
        kind = draw.choices(("add", "update", "delete", "compact"), (5, 3, 2, 1))[0]
        if kind == "add":
            ids = [f"p{draw.randrange(10**9):09d}" for _ in range(draw.randrange(1, 40))]
        else:
            ids = draw.sample(sorted(known), min(len(known), draw.randrange(1, 20)))
        if kind != "compact" and not ids:
            continue
        print(json.dumps([kind, stamp, ids]), flush=True)
        if kind in ("add", "update"):
            rows, codes = zip(*(row_of(id, stamp) for id in ids), strict=True)
            index.put(rows, codes, kind == "update")
            known.update(ids)
        elif kind == "delete":
            index.delete(ids)
            known -= set(ids)
        else:
            index.compact(2.0)
        print(json.dumps(["done", stamp, []]), flush=True)


def run_kills(place: Path, kills: int, seed: int = 0, longest: float = 0.6) -> Report:
    """Raises: AssertionError where a writer ended by itself."""
    import saccade
    from saccade.search.index import Index

    started, folder, draw = time.perf_counter(), place / "index", random.Random(seed)
    create(folder)
    paths = os.pathsep.join((str(Path(__file__).parent), str(Path(saccade.__file__).parents[1])))
    wanted: dict[str, int] = {}  # id → the change that wrote it last
    by_change: dict[str, int] = {}
    stamp = acknowledged = lost = problems = 0
    writers = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WRITERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert writers.stdin is not None
    assert writers.stdout is not None
    assert writers.stdout.readline() == "ready\n"
    for number in range(kills):
        writers.stdin.write(f"{folder}\t{seed + number}\t{stamp}\n")
        writers.stdin.flush()
        pid = int(writers.stdout.readline())
        time.sleep(draw.uniform(0.0, longest))
        os.kill(pid, signal.SIGKILL)
        said = list(iter(writers.stdout.readline, "gone\n"))
        if said and "gone" in said[-1]:
            said[-1] = ""
        lines = [json.loads(line) for line in said if line.endswith("]\n")]
        under_way = None
        for kind, at, ids in lines:
            stamp = max(stamp, at)
            if kind != "done":
                under_way = kind, at, ids
                continue
            assert under_way is not None
            acknowledged += 1
            _apply(wanted, *under_way)
            under_way = None
        by_change[under_way[0] if under_way else "between"] = (
            by_change.get(under_way[0] if under_way else "between", 0) + 1
        )
        with Index.open(folder) as index:
            found = {row["id"]: row["size"] for row in index.table.columns(["id", "size"]).to_pylist()}
            problems += len(index.check())
        after = dict(wanted)
        if under_way is not None:
            _apply(after, *under_way)
        if found not in (wanted, after):  # a change is there whole, or not at all
            lost += sum(found.get(id) not in (at, after.get(id)) for id, at in wanted.items())
            problems += sum(id not in wanted and id not in after for id in found)
        wanted = found
    writers.stdin.close()
    writers.wait()
    with Index.open(folder, write=True):
        pass  # what the last kill left is removed under the lock
    size = _bytes(folder)
    with Index.open(folder, write=True) as index:
        index.compact(0.0)
    create(place / "fresh")
    with Index.open(place / "fresh", write=True) as index:
        rows, codes = zip(*(row_of(id, at) for id, at in sorted(wanted.items())), strict=True)
        index.put(rows, codes, False)  # type: ignore[arg-type]
    sizes = size, _bytes(folder), _bytes(place / "fresh")
    return Report(kills, by_change, acknowledged, lost, problems, len(wanted), *sizes, time.perf_counter() - started)


def _apply(rows: dict[str, int], kind: str, stamp: int, ids: Sequence[str]) -> None:
    for id in ids:
        if kind == "delete":
            rows.pop(id, None)
        elif kind != "compact":
            rows[id] = stamp


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the report here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        report = run_kills(Path(place), given.kills, given.seed)
    print(json.dumps(asdict(report), indent=2))
    if given.json is not None:
        from saccade.core.files import write_json

        write_json(given.json, asdict(report))
    sys.exit(report.lost + report.problems > 0)


if __name__ == "__main__":
    main()
