"""Loops of our own in C++, for a CPU: compiled by the system's compiler when first needed, and kept in the cache.

Nothing depends on them. Without a compiler, with `SACCADE_NATIVE=0`, or where compiling fails, PyTorch does the same in
more passes over memory. Small work is PyTorch's too, whatever the cache holds (`SACCADE_NATIVE=1`: none of it).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch

from saccade.ops.form import AttentionForm
from saccade.ops.machine_code import machine_code

MIN_WORK = 2e11  # multiplications and additions, about two seconds of a core, that are worth a second of compiling
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_lock = threading.Lock()
_loaded: dict[str, ctypes.CDLL | None] = {}  # None: it could not be compiled, and will not get better


def unavailable() -> str | None:
    """Why the loops cannot be compiled on this machine; None if they can."""
    if os.environ.get("SACCADE_NATIVE") == "0":
        return "SACCADE_NATIVE=0"
    return "there is no C++ compiler (g++, clang++, c++ or CXX)" if find_compiler() is None else None


def refuses(device: torch.device, dtypes: set[torch.dtype], form: AttentionForm, work: float) -> str | None:
    """Why the loops do not suit so many operations of attention; None if they do, and then they are compiled."""
    if device.type != "cpu" or dtypes != {torch.float32}:
        return "it takes float32 on a CPU"
    if form.choice != "attend" or not form.bounded:
        return "it knows attention with a norm and a sharpness of at most 30"
    if work < MIN_WORK and os.environ.get("SACCADE_NATIVE") != "1":
        return f"{work:.0e} operations are too few to be worth compiling for"
    return unavailable() or ("the compiler failed" if library() is None else None)


def library() -> ctypes.CDLL | None:
    """The compiled loops; None where they are not wanted or could not be compiled."""
    compiler = find_compiler()
    if compiler is None or unavailable() is not None:
        return None
    key = _key(compiler)
    with _lock:
        if key not in _loaded:
            _loaded[key] = None
            with suppress(OSError, subprocess.SubprocessError):
                _loaded[key] = _load(machine_code("native", f"loops-{key}.so", lambda: _compile(compiler)))
        return _loaded[key]


def find_compiler() -> str | None:
    """Of C++: $CXX, or the first that is installed."""
    return _found(os.environ.get("CXX", ""), os.environ.get("PATH"))


@cache
def _found(named: str, path: str | None) -> str | None:
    names = (named,) if named else ("g++", "clang++", "c++")
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


@cache
def _sources() -> tuple[Path, ...]:
    folder = Path(str(files("saccade.ops.native")))
    return tuple(sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h")))


@cache
def _key(compiler: str) -> str:
    """Of the sources, the compiler and the processor: whichever changes, it is compiled again."""
    with suppress(OSError, subprocess.SubprocessError):
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20)
        texts = [path.read_text(encoding="utf-8") for path in _sources()]
        parts = [*texts, *FLAGS, compiler, version.stdout, platform.machine(), _processor()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return "unknown"


def _processor() -> str:
    """What instructions it has."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.processor()


def _compile(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "loops.so"
        sources = [str(path) for path in _sources() if path.suffix == ".cpp"]
        subprocess.run([compiler, *FLAGS, *sources, "-o", str(made)], capture_output=True, check=True, timeout=120)
        return made.read_bytes()


def _load(code: bytes) -> ctypes.CDLL:
    """From memory, or a folder that is this process's alone: nobody can put another file in its place."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("saccade-loops")  # stays open: a library is known by its path, and this is one
        with open(handle, "wb", closefd=False) as file:
            file.write(code)
        return ctypes.CDLL(f"/proc/self/fd/{handle}")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "loops.so"
        place.write_bytes(code)
        return ctypes.CDLL(str(place))
