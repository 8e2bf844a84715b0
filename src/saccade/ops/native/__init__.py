"""Loops of our own in C++, for a CPU: compiled by the system's compiler when first needed, and kept in the cache.

Nothing depends on them. Without a compiler, with `SACCADE_NATIVE=0`, or where compiling fails, PyTorch does the same in
more passes over memory. Small work never waits for a compiler (`SACCADE_NATIVE=1`: it does, once).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import threading
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.core.files import atomic_file, cache_folder

WORTH = 2e11  # multiplications and additions, about two seconds of a core, that are worth a second of compiling
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_SEAL = hashlib.sha256().digest_size  # bytes behind a library, the digest of those before: a broken file is seen
_lock = threading.Lock()
_loaded: dict[Path, ctypes.CDLL | None] = {}


def native_library(work: float) -> ctypes.CDLL | None:
    """The compiled loops, if they are wanted, and there or worth compiling for so many operations."""
    wanted = os.environ.get("SACCADE_NATIVE", "")
    if wanted == "0" or (compiler := _compiler(os.environ.get("CXX", ""), os.environ.get("PATH"))) is None:
        return None
    place = cache_folder() / "native" / f"loops-{_key(compiler)}.so"
    with _lock:
        if place not in _loaded and (library := _open(place)) is not None:
            _loaded[place] = library
        if place not in _loaded and (wanted == "1" or work >= WORTH):
            _loaded[place] = _open(place) if _compile(compiler, place) else None  # None: it will not get better
        return _loaded.get(place)


@cache
def _sources() -> tuple[Path, ...]:
    folder = Path(str(files("saccade.ops.native")))
    return tuple(sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h")))


@cache
def _compiler(named: str, path: str | None) -> str | None:
    names = (named,) if named else ("g++", "clang++", "c++")
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


@cache
def _key(compiler: str) -> str:
    """Of the sources, the compiler and the processor: whichever changes, it is compiled again."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20)
        texts = [path.read_text(encoding="utf-8") for path in _sources()]
        parts = [*texts, *FLAGS, compiler, asked.stdout, platform.machine(), _processor()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return "unknown"


def _processor() -> str:
    """What instructions it has."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.processor()


def _compile(compiler: str, place: Path) -> bool:
    try:
        with atomic_file(place) as temporary:
            made = temporary.with_suffix(".so")
            try:
                sources = [str(path) for path in _sources() if path.suffix == ".cpp"]
                command = [compiler, *FLAGS, *sources, "-o", str(made)]
                subprocess.run(command, capture_output=True, check=True, timeout=120)
                library = made.read_bytes()
                temporary.write_bytes(library + hashlib.sha256(library).digest())
            finally:
                made.unlink(missing_ok=True)
    except (SaccadeError, OSError, subprocess.SubprocessError):
        return False
    return True


def _open(place: Path) -> ctypes.CDLL | None:
    with suppress(OSError):
        content = place.read_bytes()
        if hashlib.sha256(content[:-_SEAL]).digest() == content[-_SEAL:]:
            return ctypes.CDLL(str(place))
    return None
