"""Train on a behaviour log that is larger than memory: writes one, trains with memory limited, and says what it took.

    python scripts/large_log.py [--gigabytes 5] [--memory 2] [--steps 400] [--folder /tmp/large-log] [--keep]

The log has an impression a row, with title, image features (256 numbers) and brand of its item in the row itself, and
twenty behaviours. Training is `saccade train marn data=clicks`, in a process whose data (heap, stacks and whatever else
is private to it) may not grow beyond `--memory` gigabytes: RLIMIT_DATA, since PyTorch's libraries alone map more than
two gigabytes of address space. Its largest resident size is what the system counted. The folder is removed in the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

GIGABYTE = 10**9
ITEMS, IMAGE_DIM, HISTORY, BRANDS = 20_000, 256, 20, 300
ROWS = 8192  # of a row group
KINDS = np.array(["view", "click", "cart", "buy"])
WORDS = np.array(["red", "blue", "green", "small", "large", "soft", "warm", "wooden", "shiny", "toy", "lamp", "mug"])
console = Console()


def write_log(path: Path, size: int, seed: int) -> int:
    """Users who like some brands click on them more often. Gives the number of impressions."""
    draw, fixed = np.random.default_rng(seed), np.random.default_rng(0)
    image = fixed.standard_normal((ITEMS, IMAGE_DIM), dtype=np.float32)
    brand = fixed.integers(0, BRANDS, ITEMS)
    ids = np.array([f"item-{n:06d}" for n in range(ITEMS)])
    titles = np.array([" ".join(fixed.choice(WORDS, 6)) for _ in range(ITEMS)])
    brands = np.array([f"brand-{n}" for n in range(BRANDS)])
    offsets = pa.array(np.arange(0, (ROWS + 1) * HISTORY, HISTORY), pa.int32())
    count, writer = 0, None
    while not path.exists() or path.stat().st_size < size:
        item, past = draw.integers(0, ITEMS, ROWS), draw.integers(0, ITEMS, (ROWS, HISTORY))
        again = draw.random(ROWS) < 0.3  # an item of a brand that the user knows
        item = np.where(again, past[:, -1], item)
        known = (brand[past] == brand[item][:, None]).any(axis=1)
        now = draw.integers(1_600_000_000, 1_700_000_000, ROWS)
        times = now[:, None] - np.sort(draw.integers(60, 10**6, (ROWS, HISTORY)), axis=1)[:, ::-1]
        listed = lambda values: pa.ListArray.from_arrays(offsets, pa.array(values))  # noqa: E731
        table = pa.table(
            {
                "user": [f"user-{n}" for n in draw.integers(0, 10**6, ROWS)],
                "item": ids[item],
                "clicked": (draw.random(ROWS) < np.where(known, 0.6, 0.2)).astype(np.int8),
                "time": now,
                "title": titles[item],
                "brand": brands[brand[item]],
                "image": pa.FixedSizeListArray.from_arrays(pa.array(image[item].ravel()), IMAGE_DIM),
                "history": listed(ids[past.ravel()]),
                "history_kinds": listed(KINDS[draw.integers(0, 4, ROWS * HISTORY)]),
                "history_times": listed(times.ravel()),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=["history_kinds"])
        writer.write_table(table, row_group_size=ROWS)
        count += ROWS
    if writer is not None:
        writer.close()
    return count


def limited(memory: float) -> None:
    """In the child, before it becomes Saccade."""
    limit = int(memory * GIGABYTE)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--memory", type=float, default=2.0, help="gigabytes that the training may take")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "large-log")
    parser.add_argument("--keep", action="store_true", help="do not remove the folder in the end")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    (folder / "log").mkdir(parents=True, exist_ok=True)
    try:
        started = time.perf_counter()
        train = folder / "log" / "train.parquet"
        count = write_log(train, int(arguments.gigabytes * GIGABYTE), 1)
        write_log(folder / "log" / "dev.parquet", 1, 2)
        size = train.stat().st_size / GIGABYTE
        console.print(f"{count:,} impressions, {size:.2f} GB, written in {time.perf_counter() - started:.0f} s")
        words = ["data=clicks", f"root={folder / 'log'}", f"steps={arguments.steps}", "batch_size=256"]
        words += [f"evaluate_every={arguments.steps}", f"accelerator={arguments.device}", "log_every=50"]
        words += ["model.dim=64", "common_dim=64", "state_dim=64", "hidden_dim=64", "reversal=0.1", "shuffle=32768"]
        command = [sys.executable, "-m", "saccade", "train", "marn", *words, "-o", str(folder / "run")]
        settings = {
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "MALLOC_ARENA_MAX": "2",
            "SACCADE_CACHE": str(folder / "cache"),
        }
        started = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, **settings}, preexec_fn=lambda: limited(arguments.memory))
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / GIGABYTE
        console.print(
            f"exit code {done.returncode}: {arguments.steps} steps of 256 in {seconds:.0f} s with the first pass over "
            f"the items; at most {peak:.2f} GB resident, {arguments.memory:g} GB of data allowed (RLIMIT_DATA)"
        )
        if done.returncode:
            raise SystemExit(done.returncode)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
