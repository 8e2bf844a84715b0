"""Damage the files that Saccade reads, thousands of times, and see that each reading ends well or in one sentence.

python scripts/fuzz.py [--mutations 10000] [--seed 0] [--only READER] [--page]

Every reader of files gets a tiny sound sample. A mutation damages one of its files: bits flipped, a part cut off, taken
out, doubled, exchanged or overwritten, a length made huge, a value of JSON replaced by an odd one, the content of an
archive damaged before it is packed, a bomb. Mutations are read in a child process, so that one that dies, hangs or
takes too much memory is named by reader, seed and number. `--page` writes the table into docs/data/formats.md.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import mmap
import os
import random
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_samples import READERS, Reader

from saccade.core.errors import SaccadeError
from saccade.core.files import read_text, write_text

PAGE = Path(__file__).resolve().parent.parent / "docs" / "data" / "formats.md"
BEGIN, END = "<!-- fuzz -->", "<!-- /fuzz -->"
SECONDS = 30  # of a processor: a mutation that takes more hangs
MEMORY = 160 << 20  # bytes by which one reading may grow
ADDRESSES = 6 << 30  # and what no child can ever take beside what its parent had
LONGEST = 1000  # characters of a sentence
ODD: list[Any] = [None, True, -1, 0, 3, 10**30, 1e308, -0.5, "", "x", "é", "\ud800", "../a", [], [[]], {}, {"a": 1}]
HUGE = (0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, 1 << 20)

Damage = Callable[[random.Random, bytes], bytes]


def flip(draw: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data))]


def take_out(draw: random.Random, data: bytes) -> bytes:
    first = draw.randrange(len(data))
    return data[:first] + data[first + draw.randint(1, max(1, len(data) // 4)) :]


def double(draw: random.Random, data: bytes) -> bytes:
    first, last = sorted((draw.randrange(len(data)), draw.randrange(len(data))))
    return data[:last] + data[first:last] + data[last:]


def swap(draw: random.Random, data: bytes) -> bytes:
    size = draw.choice((4, 8, 16, 64))
    one, other = (draw.randrange(max(1, len(data) // size)) * size for _ in range(2))
    found = bytearray(data)
    found[one : one + size], found[other : other + size] = data[other : other + size], data[one : one + size]
    return bytes(found)


def overwrite(draw: random.Random, data: bytes) -> bytes:
    first, size = draw.randrange(len(data)), draw.choice((1, 2, 4, 16, 64))
    return data[:first] + draw.choice((draw.randbytes(size), b"\0" * size, b"\xff" * size)) + data[first + size :]


def lengthen(draw: random.Random, data: bytes) -> bytes:
    """A number of four or eight bytes, which may be a length, made huge (or negative, to who reads it so)."""
    size = draw.choice((4, 8))
    value = (draw.choice(HUGE) & ((1 << 8 * size) - 1)).to_bytes(size, draw.choice(("little", "little", "big")))
    first = draw.randrange(max(1, len(data) // 4)) * 4
    return data[:first] + value + data[first + size :]


DAMAGES: tuple[Damage, ...] = (flip, flip, flip, cut, take_out, double, swap, overwrite, lengthen, lengthen)


def damaged(draw: random.Random, path: Path) -> bytes:
    """The bytes of a file, damaged in one way, or rarely in two."""
    content = path.read_bytes()
    way, name = draw.random(), path.name
    if way < 0.02 and (bombs := list(bombs_of(path))):
        return draw.choice(bombs)
    if way < 0.5 and name.endswith((".json", ".jsonl", ".json.gz")):
        return _packed(name, odd_value(draw, _unpacked(name, content)))
    if way < 0.5 and name.endswith(".gz"):
        return _packed(name, damage(draw, _unpacked(name, content)))
    if way < 0.6 and zipfile.is_zipfile(io.BytesIO(content)):
        return repacked(draw, content)
    if way < 0.4 and name.endswith(".safetensors"):
        return odd_header(draw, content)
    return damage(draw, content)


def damage(draw: random.Random, content: bytes) -> bytes:
    for _ in range(draw.choice((1, 1, 1, 2))):
        content = draw.choice(DAMAGES)(draw, content) if content else b""
    return content


def _unpacked(name: str, content: bytes) -> bytes:
    return gzip.decompress(content) if name.endswith(".gz") else content


def _packed(name: str, content: bytes) -> bytes:
    return gzip.compress(content) if name.endswith(".gz") else content


def odd_value(draw: random.Random, content: bytes) -> bytes:
    """JSON, or JSON lines, with one value replaced, left out or doubled."""
    lines = content.decode().split("\n")
    try:
        value, place = json.loads(content), None
    except ValueError:
        place = draw.choice([n for n, line in enumerate(lines) if line])
        value = json.loads(lines[place])
    holder: Any = {"": value}
    key: Any = ""
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.8:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    way = draw.choice(("replace", "replace", "drop", "double"))
    if key == "" or way == "replace":
        spoilt = draw.choice(ODD)
        if key == "":
            value = spoilt
        else:
            holder[key] = spoilt
    elif way == "drop":
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[f"{key}2"] = holder[key]
    text = json.dumps(value)
    if place is not None:
        lines[place] = text
        text = "\n".join(lines)
    return text.encode()


def odd_header(draw: random.Random, content: bytes) -> bytes:
    """Safetensors whose header has an odd value, and a length that fits."""
    (length,) = struct.unpack_from("<Q", content)
    header = odd_value(draw, content[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def repacked(draw: random.Random, content: bytes) -> bytes:
    """An archive one of whose files was damaged before it was packed, so that its checksum is right."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        spoilt = draw.choice([n for n in old.namelist() if not n.endswith("/")])
        for name in old.namelist():
            new.writestr(name, damage(draw, old.read(name)) if name == spoilt else old.read(name))
    return packed.getvalue()


def bombs_of(path: Path) -> Iterator[bytes]:
    """Small files that become large ones, or deep ones, under this name."""
    name, content = path.name, path.read_bytes()
    if name.endswith((".json", ".jsonl", ".yaml", ".json.gz")):
        for text in ("[" * 100_000, '{"a":' * 100_000, "9" * 100_000, '{"a": 1e' + "9" * 50 + "}"):
            yield _packed(name, text.encode())
    if name.endswith(".yaml"):
        rows = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
        merged = "".join(f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 10)}]}}\n" for n in range(1, 30))
        yield b"a0: &a0 [x, x]\n" + rows.encode()
        yield b"b0: &b0 {x: x}\n" + merged.encode()
    if name.endswith(".gz"):
        yield _zeros_gzipped()
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield _zeros_zipped(max(archive.namelist(), key=lambda one: archive.getinfo(one).file_size))


@cache
def _zeros_gzipped() -> bytes:
    return gzip.compress(bytes(200 << 20), 1)


@cache
def _zeros_zipped(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(name, bytes(200 << 20))
    return packed.getvalue()


@dataclass
class Outcome:
    reader: str
    read: int = 0
    sentences: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def mutations(self) -> int:
        return self.read + self.sentences + len(self.faults)


class Child:
    """A process that reads mutations `first` … `count` - 1 of one reader, and what it has told of them."""

    def __init__(self, reader: Reader, seed: int, first: int, count: int, place: Path) -> None:
        self.reader, self.seed, self.count, self.place = reader, seed, count, place
        self.told = mmap.mmap(-1, 24)  # number of the mutation, how many were read, how many refused: shared
        self.said = place / "faults.txt"
        self.said.touch()
        self.told[:] = struct.pack("=QQQ", first, 0, 0)
        self.ended, writing = os.pipe()  # closed by the end of the process, whatever it is
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
        else:
            try:
                self._work(first)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)

    def _work(self, first: int) -> None:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        own = Path("/proc/self/statm")
        had = int(own.read_text().split()[0]) * resource.getpagesize() if own.exists() else 0
        resource.setrlimit(resource.RLIMIT_AS, (had + ADDRESSES, had + ADDRESSES))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries' warnings
        sound = self.place / "sound"
        if not sound.exists():
            sound.mkdir()
            self.reader.make(sound)
        self.reader.read(sound)  # must be read, or nothing is shown by refusing
        read = sentences = 0
        with self.said.open("a") as faults:
            for number in range(first, self.count):
                self.told[:] = struct.pack("=QQQ", number, read, sentences)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                fault = self._mutation(number, sound)
                if fault is None:
                    read += 1
                elif fault:
                    faults.write(f"{self.reader.name}, seed {self.seed}, mutation {number}: {fault}\n")
                    faults.flush()
                else:
                    sentences += 1
            self.told[:] = struct.pack("=QQQ", self.count, read, sentences)

    def _mutation(self, number: int, sound: Path) -> str | None:
        """None if it was read, nothing if a sentence refused it, else what went wrong."""
        draw = random.Random(f"{self.seed}/{self.reader.name}/{number}")
        folder = self.place / f"{number}"
        shutil.copytree(sound, folder)
        target = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        target.write_bytes(damaged(draw, target))
        what = target.name
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            self.reader.read(folder)
            found: str | None = None
        except SaccadeError as error:
            found = judge(str(error))
        except Exception as error:
            lines = traceback.extract_tb(error.__traceback__)
            ours = [f"{Path(one.filename).name}:{one.lineno}" for one in lines if "saccade" in one.filename]
            found = f"{type(error).__name__}: {str(error)[:150]!r} ({what}; {' > '.join(ours[-3:])})"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        if grown > MEMORY:
            found = f"it took {grown >> 20} MB ({what})"
        shutil.rmtree(folder)
        return found

    def fileno(self) -> int:
        """What `select` waits for."""
        return self.ended

    def finish(self) -> tuple[int, int, int, list[str]]:
        """(next mutation, read, refused, faults) once it has ended."""
        os.close(self.ended)
        _, status = os.waitpid(self.pid, 0)
        number, read, sentences = struct.unpack("=QQQ", self.told)
        faults = self.said.read_text().splitlines()
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            died = "it hangs" if name == "SIGPROF" else f"the process died of {name}"
            faults.append(f"{self.reader.name}, seed {self.seed}, mutation {number}: {died}")
            number += 1
        elif status:
            raise SystemExit(f"{self.reader.name}: the sample itself cannot be read")
        return number, read, sentences, faults


def judge(sentence: str) -> str:
    """Nothing if it is one sentence that can be printed."""
    try:
        sentence.encode()
    except UnicodeEncodeError:
        return f"the sentence cannot be printed: {sentence!r:.200}"
    if not sentence or "\n" in sentence or len(sentence) > LONGEST:
        return f"no single sentence ({len(sentence)} characters): {sentence!r:.200}"
    return ""


def fuzz(readers: list[Reader], mutations: int, seed: int, jobs: int = 2) -> list[Outcome]:
    """All mutations, shared out evenly over the readers; `jobs` processes at a time."""
    outcomes = {reader.name: Outcome(reader.name) for reader in readers}
    share, more = divmod(mutations, len(readers))
    waiting = [(reader, 0, share + (n < more)) for n, reader in enumerate(readers)]
    running: list[Child] = []
    with tempfile.TemporaryDirectory() as place:
        while waiting or running:
            while waiting and len(running) < jobs:
                reader, first, count = waiting.pop(0)
                running.append(Child(reader, seed, first, count, Path(tempfile.mkdtemp(dir=place))))
            child = select.select(running, [], [])[0][0]
            running.remove(child)
            number, read, sentences, faults = child.finish()
            outcome = outcomes[child.reader.name]
            outcome.read += read
            outcome.sentences += sentences
            outcome.faults += faults
            if number < child.count:
                waiting.append((child.reader, number, child.count))
    return list(outcomes.values())


def table(outcomes: list[Outcome]) -> str:
    rows = [(o.reader, o.mutations, o.read, o.sentences, len(o.faults)) for o in outcomes]
    rows.append(("all", *(sum(row[n] for row in rows) for n in range(1, 5))))  # type: ignore[arg-type]
    lines = [f"| {name} | " + " | ".join(f"{n:,}" for n in numbers) + " |" for name, *numbers in rows]
    return "\n".join(["| files | mutations | read | one sentence | faults |", "|---|--:|--:|--:|--:|", *lines]) + "\n"


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    words.add_argument("--mutations", type=int, default=10_000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--jobs", type=int, default=2, help="processes at a time")
    words.add_argument("--only", help="readers whose names hold this word")
    words.add_argument("--page", action="store_true", help="write the table into docs/data/formats.md")
    given = words.parse_args()
    outcomes = fuzz([r for r in READERS if (given.only or "") in r.name], given.mutations, given.seed, given.jobs)
    print(table(outcomes), end="")
    for fault in (fault for outcome in outcomes for fault in outcome.faults):
        print(fault, file=sys.stderr)
    if given.page:
        before, _, rest = read_text(PAGE).partition(BEGIN)
        write_text(PAGE, f"{before}{BEGIN}\n{table(outcomes)}{END}{rest.partition(END)[2]}")
    return int(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
