"""The run folder: what lies where, who may write to it, and in what surroundings the run took place."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.core.errors import SaccadeError, explain_os_errors
from saccade.core.files import read_json, write_json
from saccade.version import __version__


class RunFolder:
    """The names in a run folder. `config.yaml`, written by whoever starts the trainer, lies beside them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "last.ckpt"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.csv"
        self.tensorboard = self.path / "tensorboard"
        self.best = self.path / "best"
        self.last = self.path / "last"

    def holds_run(self) -> bool:
        return any(path.exists() for path in (self.checkpoint, self.metrics, self.environment, self.best, self.last))

    def check(self, resume: bool) -> None:
        """Refuse to write over an earlier run. Callers may ask before they write a file of their own there."""
        if self.path.exists() and not self.path.is_dir():
            raise SaccadeError(f"{self.path} is a file, a folder for the run was expected")
        if not resume and self.holds_run():
            raise SaccadeError(f"{self.path} already holds a run: resume it, or choose another folder")

    def prepare(self, resume: bool) -> None:
        """Make the folder ready; without a checkpoint to go on from, what an earlier start left is cleared."""
        self.check(resume)
        with explain_os_errors(self.path, "write"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._sweep()
            if not self.checkpoint.exists():
                self.metrics.unlink(missing_ok=True)
                for folder in (self.tensorboard, self.best, self.last):
                    shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Clear what a killed process left half-written, and put back a folder caught between its two renames."""
        for kept in (self.best, self.last):
            for old in self.path.glob(f".{kept.name}.*.old"):
                if not kept.exists() and (old / kept.name).exists():
                    (old / kept.name).rename(kept)
                shutil.rmtree(old, ignore_errors=True)
        for name in ("last.ckpt", "environment.json", "metrics.csv", "best", "last"):
            for part in self.path.glob(f".{name}.*.part"):
                shutil.rmtree(part) if part.is_dir() else part.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from training in the same folder; the lock dies with the process."""
        try:
            import fcntl
        except ImportError:  # no such lock on this system
            yield
            return
        with explain_os_errors(self.path, "write"):
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise SaccadeError(f"{self.path} is in use: another process is training there") from error
        try:
            yield
        finally:
            os.close(handle)


def environment(device: torch.device, world_size: int) -> dict[str, Any]:
    """What a result may depend on beside the settings."""
    from lightning_fabric.__version__ import version as fabric_version  # late: it takes seconds to import

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "saccade": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "lightning-fabric": fabric_version,
        "platform": platform.platform(),
        "device": f"{device.type} ({name})",
        "world_size": world_size,
        "threads": torch.get_num_threads(),
    }


def record_environment(path: Path, now: Mapping[str, Any], extra: Mapping[str, Any], resumed: bool) -> list[str]:
    """Write environment.json; for a resumed run, return what has changed since it began."""
    before = read_json(path) if resumed and path.exists() else {}
    write_json(path, {**now, **extra})
    return [f"{key} was {before[key]}, is {value}" for key, value in now.items() if before.get(key, value) != value]
