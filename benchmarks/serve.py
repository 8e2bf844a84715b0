"""A running `saccade serve` under load: queries a second and their latency with 1, 8 and 32 clients; and a soak.

    python -m benchmarks.serve INDEX                # a load test of a bounded number of requests, on loopback
    python -m benchmarks.serve INDEX --grow 10000   # … of so many pictures: INDEX's, with noise in their codes
    python -m benchmarks.serve INDEX --soak 600     # ten minutes of everything: is memory flat, do descriptors stay?
    python -m benchmarks.serve INDEX --start        # from nothing: `saccade search` in a new shell, the first paint

Each writes its part of docs/results/serve.md. The service is a process of its own; its clients share the cores with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from saccade.core.files import read_json, write_json, write_text
from saccade.search.coding import Encoded
from saccade.search.index import Index

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "serve.md"
CLIENTS = (1, 8, 32)
REQUESTS = 320  # of each number of clients
WARM = 20
NOISE = 0.05  # of the size of a code's numbers
MINUTE = 60.0
LOAD = "load"  # what the figures of load tests begin with; indices of every size have their own


def sentences() -> list[str]:
    """The captions of the photographs in this repository."""
    lines = (ROOT / "photos" / "annotations.jsonl").read_text(encoding="utf-8").splitlines()
    return [caption.rstrip(". ") for line in lines for caption in json.loads(line)["captions"]]


class Connection:
    """One client: requests one after the other over a connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, method: str = "GET", body: bytes = b"", kind: str = "") -> tuple[int, bytes]:
        if self.writer is None or self.reader is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        self.writer.write((head + (f"Content-Type: {kind}\r\n" if kind else "") + "\r\n").encode() + body)
        await self.writer.drain()
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = re.search(r"content-length: (\d+)", answer)
        content = await self.reader.readexactly(int(length[1])) if length else b""
        if "connection: close" in answer:
            await self.close()
        return int(answer.split(" ", 2)[1]), content

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


@dataclass
class Load:
    """Latencies in milliseconds, and what else happened."""

    milliseconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    refused: int = 0

    def row(self) -> dict[str, float]:
        told = np.percentile(self.milliseconds, [50, 95, 99]).round(1).tolist()
        rate = len(self.milliseconds) / self.seconds
        return {
            "requests": len(self.milliseconds),
            "a_second": round(rate, 1),
            "p50": told[0],
            "p95": told[1],
            "p99": told[2],
        }


async def load(port: int, clients: int, requests: int, paths: Sequence[str]) -> Load:
    """So many clients, each asking as soon as it was answered, until all requests are made."""
    found, numbers = Load(), iter(range(requests))

    async def client() -> None:
        line = Connection(port)
        for n in numbers:
            began = time.perf_counter()
            status, _ = await line.ask(paths[n % len(paths)])
            found.milliseconds.append(1000 * (time.perf_counter() - began))
            found.refused += status != 200
        await line.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    found.seconds = time.perf_counter() - began
    return found


@contextmanager
def served(*words: object) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port and the process of `saccade serve`."""
    command = [sys.executable, "-m", "saccade", "serve", *map(str, words), "--port", "0"]
    command += ["--limit", "rate=100000", "--limit", "burst=100000"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            at = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
            if at is None:
                log.seek(0)
                raise SystemExit(f"the service did not start: {log.read()[-2000:]}")
            yield int(at[1]), process
        finally:
            process.terminate()
            process.wait(60)


def grown(source: Path, folder: Path, pictures: int) -> Path:
    """An index of so many pictures: those of `source` again and again, with noise in their codes."""
    draw, made = np.random.default_rng(0), count()
    with Index.open(source) as old, Index.create(folder, old.settings.model, codes=old.settings.kept.codes) as new:
        kept = old.settings.kept
        rows = old.rows(old.snapshot().ids)
        columns = ["codes", "scale", "boxes", "thumbnail", *(["vector"] if kept.vector_dim else [])]
        stored = old.rows([row["id"] for row in rows], columns)
        number = np.int8 if kept.codes == "int8" else np.float16
        source_rows = cycle(list(zip(rows, stored, strict=True)))
        while len(new) < pictures:
            batch, codes = [], []
            for row, code in (next(source_rows) for _ in range(min(256, pictures - len(new)))):
                plain = np.frombuffer(code["codes"], number).reshape(-1, kept.dim).astype(np.float32)
                noisy = plain + draw.normal(0, NOISE * float(plain.std()), plain.shape)
                low, high = (-127, 127) if number is np.int8 else (-6e4, 6e4)
                boxes = np.frombuffer(code["boxes"], np.float32).reshape(-1, 4)
                vector = np.asarray(code["vector"], np.float16) if kept.vector_dim else None
                if vector is not None:
                    spread = NOISE * float(vector.astype(np.float32).std())
                    vector = (vector + draw.normal(0, spread, vector.shape)).astype(np.float16)
                noisy = noisy.round() if number is np.int8 else noisy
                codes.append(Encoded(noisy.clip(low, high).astype(number), code["scale"], boxes, vector))
                batch.append({**row, "id": f"{next(made):06}/{row['id']}", "thumbnail": code["thumbnail"]})
            new.put(batch, codes, replaces=False)
    return folder


def measure(index: Path, requests: int) -> dict[str, Any]:
    """Load of searches, explanations and thumbnails."""
    texts, before = sentences(), machine()
    searches = [f"/search?{urlencode({'text': text, 'top': 20})}" for text in texts]
    with Index.open(index) as opened:
        name, pictures, model = index.name, len(opened), Path(opened.settings.model).name
        ids = opened.snapshot().ids[:200]
    explanations = [f"/explain?{urlencode({'text': text, 'id': id})}" for text, id in zip(texts, cycle(ids))]
    small = [f"/thumbnails/{quote(name)}/{quote(id)}" for id in ids]

    async def all_of_it(port: int) -> dict[str, Any]:
        first = await load(port, 1, 1, searches)
        second = await load(port, 1, 1, searches[1:])
        await load(port, 1, WARM, searches)
        found: dict[str, Any] = {"first": first.milliseconds[0], "second": second.milliseconds[0]}
        for kind, paths, clients in (
            *((f"search, top 20, {n} client{'s' * (n > 1)}", searches, n) for n in CLIENTS),
            ("explanation, 1 client", explanations, 1),
            ("thumbnail, 8 clients", small, 8),
            ("nothing at all (/healthz), 8 clients", ["/healthz"], 8),
        ):
            one = await load(port, clients, requests, paths)
            assert not one.refused, f"{kind}: {one.refused} requests were refused"
            found[kind] = one.row()
        return found

    with served(index) as (port, _):
        found = asyncio.run(all_of_it(port))
    return {"pictures": pictures, "model": model, "machine": before, "figures": found}


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {name}, with a load of {os.getloadavg()[0]:.1f} before"


def soak(index: Path, models: Sequence[str], seconds: float, pause: float) -> dict[str, Any]:
    """Searches, explanations, pictures, uploads and nonsense, so many seconds long and bounded in number."""
    texts, before = sentences(), machine()
    with Index.open(index) as opened:
        name, pictures, ids = index.name, len(opened), opened.snapshot().ids
    photo = next((ROOT / "photos").glob("*.jpg")).read_bytes()
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\n\r\n' + photo + b"\r\n--x--\r\n"
    wanted: dict[str, tuple[int, Callable[[Connection, int], Awaitable[tuple[int, bytes]]]]] = {
        "search": (200, lambda line, n: line.ask(f"/search?{urlencode({'text': texts[n % len(texts)], 'top': 48})}")),
        "like": (200, lambda line, n: line.ask(f"/search?{urlencode({'like': ids[n % len(ids)]})}")),
        "explain": (
            200,
            lambda line, n: line.ask(f"/explain?{urlencode({'text': texts[n % len(texts)], 'id': ids[n % len(ids)]})}"),
        ),
        "thumbnail": (200, lambda line, n: line.ask(f"/thumbnails/{quote(name)}/{quote(ids[n % len(ids)])}")),
        "upload": (200, lambda line, n: line.ask("/search", "POST", form, "multipart/form-data; boundary=x")),
        "nonsense": (422, lambda line, n: line.ask("/copies", "POST", b"{", "application/json")),
        "too long": (422, lambda line, n: line.ask(f"/search?text={'a+' * 5000}")),
        "not there": (404, lambda line, n: line.ask("/pictures/x%00/../../etc/passwd" if n % 2 else "/nowhere")),
        "metrics": (200, lambda line, n: line.ask("/metrics")),
    }
    errors: list[str] = []
    samples: list[dict[str, float]] = []
    done = 0

    async def client(port: int, first: int, until: float) -> None:
        nonlocal done
        line, kinds = Connection(port), list(wanted)
        for n in count(first):
            if time.monotonic() > until:
                break
            kind = kinds[n % len(kinds)]
            try:
                status, content = await wanted[kind][1](line, n)
            except (OSError, asyncio.IncompleteReadError) as error:
                errors.append(f"{kind}: {type(error).__name__}")
                await line.close()
                continue
            done += 1
            if status != wanted[kind][0] and not (kind == "not there" and status == 400):
                errors.append(f"{kind}: {status} {content[:80]!r}")
            if n % 50 == 0:
                await line.close()  # clients come and go
            await asyncio.sleep(pause)
        await line.close()

    async def watch(pid: int, until: float) -> None:
        began = time.monotonic()
        while time.monotonic() < until:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            handles = len(os.listdir(f"/proc/{pid}/fd"))
            threads = len(os.listdir(f"/proc/{pid}/task"))
            megabytes = pages * resource.getpagesize() / 1e6
            at = round((time.monotonic() - began) / MINUTE, 2)
            samples.append({"minute": at, "megabytes": round(megabytes, 1), "descriptors": handles, "threads": threads})
            await asyncio.sleep(min(10.0, seconds / 20))

    async def run(port: int, pid: int) -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(watch(pid, until), *(client(port, 7 * n, until) for n in range(8)))

    words = [word for model in models for word in ("--model", model)]
    with served(index, *words) as (port, process):
        asyncio.run(run(port, process.pid))
        alive = process.poll() is None
    half = samples[len(samples) // 2 :]
    growth = (
        float(np.polyfit([s["minute"] for s in half], [s["megabytes"] for s in half], 1)[0]) if len(half) > 2 else 0.0
    )
    return {
        "pictures": pictures, "seconds": seconds, "requests": done, "errors": len(errors), "examples": errors[:5],
        "alive": alive, "samples": samples[:: max(1, len(samples) // 12)] + samples[-1:],
        "megabytes_a_minute": round(growth, 3), "machine": before,
    }  # fmt: skip


def start(index: Path, times: int = 3) -> dict[str, Any]:
    """What is waited for before anything has run: the median seconds of `saccade search` and of PyTorch alone, each in
    a process of its own, and the milliseconds until a browser has painted the page, where there is one."""
    with Index.open(index) as opened:
        pictures, before = len(opened), machine()

    def seconds(*words: str) -> float:
        took = []
        for _ in range(times + 1):  # the first one reads files that are in no cache
            began = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, capture_output=True)
            took.append(time.perf_counter() - began)
        return float(np.median(took[1:]))

    return {
        "pictures": pictures,
        "search_s": seconds("-m", "saccade", "search", str(index), sentences()[0]),
        "torch_s": seconds("-c", "import torch"),
        "paint_ms": first_paint(index),
        "machine": before,
    }


def first_paint(index: Path, visits: int = 10) -> float | None:
    """The median over visits by browsers that know nothing of the page; None without Chromium."""
    found = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := which(name))), None)
    if found is None:
        return None
    from playwright.sync_api import sync_playwright

    asked = "performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)"
    with served(index) as (port, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        took = []
        for _ in range(visits):
            page = browser.new_context(bypass_csp=True).new_page()  # to ask when it was painted
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_function(f"{asked}.length > 0")
            took.append(page.evaluate(asked)[0])
            page.context.close()
        browser.close()
    return float(np.median(took))


def write_page(page: Path, figures: Path, part: str, found: dict[str, Any]) -> None:
    """The whole page anew, from what was measured now and before."""
    known = read_json(figures) if figures.exists() else {}
    known[part] = found
    write_json(figures, known)
    write_text(page, "\n".join(_page(known)))


def _page(known: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "# The service under load\n"
    yield "How quickly a running [`saccade serve`](../serve.md) answers, and whether it stays as it is.\n"
    loads = [found for part, found in known.items() if part.startswith(LOAD)]
    for one in sorted(loads, key=lambda found: found["pictures"]):
        figures = one["figures"]
        yield f"## Queries a second, {one['pictures']:,} pictures\n"
        yield f"`{one['model']}` on an index of {one['pictures']:,} pictures{one['made']};"
        yield f"{one['machine']}. Service and clients share the cores."
        yield "A client asks again as soon as it is answered, each time another sentence.\n"
        yield "| what is asked | requests | a second | p50 | p95 | p99 |\n|---|---:|---:|---:|---:|---:|"
        for name, row in figures.items():
            if isinstance(row, dict):
                times = " | ".join(f"{row[key]:.1f} ms" for key in ("p50", "p95", "p99"))
                yield f"| {name} | {row['requests']:.0f} | {row['a_second']:.1f} | {times} |"
        yield f"\nThe first query after the start took {figures['first']:.0f} ms, the second {figures['second']:.0f}."
        yield f"\n*Written by `{one['command']}`.*\n"
    if one := known.get("soak"):
        yield "## Ten minutes of everything\n"
        yield "Eight clients search by sentence and by picture, ask for explanations and pictures, upload, send"
        yield f"nonsense, and come and go. {one['requests']:,} requests in {one['seconds']:.0f} seconds,"
        yield f"{one['errors']} errors;"
        yield f"in the second half memory changed by {one['megabytes_a_minute']:+.2f} MB a minute."
        yield f"{one['pictures']:,} pictures; {one['machine']}.\n"
        yield "| minute | memory | descriptors | threads |\n|---:|---:|---:|---:|"
        for row in one["samples"]:
            yield f"| {row['minute']:.1f} | {row['megabytes']:.0f} MB | {row['descriptors']} | {row['threads']} |"
        yield f"\n*Written by `{one['command']}`.*\n"

    if one := known.get("start"):
        yield "## From nothing\n"
        yield f"`saccade search` in a new shell answers after {one['search_s']:.1f} s, of which"
        yield f"{one['torch_s']:.1f} s are the start of Python and PyTorch."
        yield f"{one['pictures']:,} pictures; {one['machine']}."
        if one["paint_ms"] is not None:
            yield f"A browser that sees the page for the first time has painted it after {one['paint_ms']:.0f} ms."
        yield f"\n*Written by `{one['command']}`.*\n"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--grow", type=int, default=0, help="measure an index of so many pictures, made of this one")
    parser.add_argument("--soak", type=float, default=0, help="so many seconds of everything instead")
    parser.add_argument("--start", action="store_true", help="what is waited for before anything has run")
    parser.add_argument("--pause", type=float, default=0.05, help="between two requests of a client in a soak")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of each kind")
    parser.add_argument("--model", action="append", default=[], help="served beside the index in a soak")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args(words)
    figures = given.page.with_suffix(".json")
    command = "python -m benchmarks.serve INDEX"
    with tempfile.TemporaryDirectory() as folder:
        index = grown(given.index, Path(folder) / given.index.name, given.grow) if given.grow else given.index
        if given.soak:
            told = soak(index, given.model, given.soak, given.pause)
            part, command = "soak", f"{command} --soak {given.soak:g} --pause {given.pause:g}"
        elif given.start:
            told = start(index)
            part, command = "start", f"{command} --start"
        else:
            told = measure(index, given.requests)
            part, command = f"{LOAD} {told['pictures']}", f"{command}{f' --grow {given.grow}' if given.grow else ''}"
    made = ", made of fewer by noise in their codes" if given.grow else ""
    write_page(given.page, figures, part, {**told, "command": command, "made": made})
    print(given.page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
