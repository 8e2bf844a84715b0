"""`saccade doctor`: what this machine offers, and which backends run on it."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli.options import escape

PACKAGES = ("torch", "triton", "numpy", "pyarrow", "safetensors", "tokenizers", "lightning-fabric", "pillow", "av")
SWITCHES = (
    "SACCADE_KERNELS",
    "SACCADE_NATIVE",
    "SACCADE_LOG",
    "SACCADE_CACHE",
    "SACCADE_WEIGHTS",
    "CXX",
    "OMP_NUM_THREADS",
)


def doctor(*, as_json: bool = False) -> None:
    """Show versions, devices, compilers and switches, and which backends can run on this machine, or why not.

    Which of them computes a given table is printed while it happens with SACCADE_LOG=ops.

    Example: saccade doctor
    """
    found: dict[str, Any] = {
        "versions": _versions(),
        "devices": _devices(),
        "compilers": _compilers(),
        "switches": _switches(),
        "operators": _operators(),
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    console = Console(soft_wrap=True)
    for title in ("versions", "devices", "compilers", "switches"):
        table = Table(title=title.capitalize(), title_justify="left", show_header=False)
        for name, value in found[title].items():
            table.add_row(name, escape(value))
        console.print(table)
    table = Table("operator", "backend", "here", title="Backends, the preferred one first", title_justify="left")
    for operator, rows in found["operators"].items():
        for number, row in enumerate(rows):
            table.add_row("" if number else operator, row["backend"], escape(row["unavailable"] or "available"))
        table.add_section()
    console.print(table)


def _versions() -> dict[str, str]:
    import platform

    from saccade.version import __version__

    found = {"saccade": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _devices() -> dict[str, str]:
    import torch

    found = {"cpu": f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}
    for number in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(number)
        capability = f"compute capability {gpu.major}.{gpu.minor}"
        found[f"cuda:{number}"] = f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {capability}"
    if not torch.cuda.is_available():
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
        found["cuda"] = f"none; this PyTorch was built for {built}"
    return found


def _compilers() -> dict[str, str]:
    import subprocess

    from saccade.ops.cuda import unavailable
    from saccade.ops.native import find_compiler

    compiler = find_compiler()
    version = "none found (g++, clang++, c++ or CXX)"
    if compiler is not None:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20, check=False)
        version = f"{compiler}: {(done.stdout.splitlines() or ['unknown'])[0]}"
    return {"C++": version, "NVRTC": unavailable() or "found"}


def _switches() -> dict[str, str]:
    import os

    from saccade.core.cache import cache_folder

    found = {name: os.environ.get(name, "not set") for name in SWITCHES}
    return {**found, "cache": str(cache_folder())}


def _operators() -> dict[str, list[dict[str, str | None]]]:
    import saccade.search  # noqa: F401  it defines operators, and so do some models
    from saccade.models import entries
    from saccade.ops import OPERATORS

    entries()
    return {
        name: [{"backend": row.name, "unavailable": row.available()} for row in OPERATORS[name].backends]
        for name in sorted(OPERATORS)
    }
