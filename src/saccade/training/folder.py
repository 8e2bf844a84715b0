"""The run folder: what lies where, who may write to it, its checkpoint, and in what surroundings the run took place."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError, explain_os_errors, surfaced_os_errors
from saccade.core.files import atomic_file, atomic_folder, check_archive, read_json, write_json
from saccade.core.weights import load_torch
from saccade.models import Model
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

    def check(self, resume: bool) -> None:
        """Refuse to write over an earlier run. Callers may ask before they write a file of their own there."""
        if self.path.exists() and not self.path.is_dir():
            raise SaccadeError(f"{self.path} is a file, a folder for the run was expected")
        written = (self.checkpoint, self.metrics, self.environment, self.best, self.last)
        if not resume and any(path.exists() for path in written):
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


FORMAT = 2
_KEYS = ("format", "config", "items", "world_size", "progress", "model", "optimiser", "random")


@dataclass
class Progress:
    """Where a run stands, beside its weights. The learning rate and the data order follow from `step`."""

    step: int = 0
    seconds: float = 0.0
    best: dict[str, float] = field(default_factory=dict)  # the metrics of the best evaluation
    best_step: int = 0
    last: dict[str, float] = field(default_factory=dict)  # the metrics of the latest evaluation
    stale: int = 0  # evaluations since the best one
    totals: dict[str, float] = field(default_factory=dict)  # figures summed since the last row of the log
    counts: dict[str, int] = field(default_factory=dict)  # over so many steps each: not every step has every figure


def save_checkpoint(path: Path, contents: Mapping[str, Any], progress: Progress) -> None:
    """Replace the checkpoint at `path`. Tensors and plain values only, so that it loads without running any code."""
    values = {"format": FORMAT, **contents, "progress": dataclasses.asdict(progress)}
    with atomic_file(path) as temporary, surfaced_os_errors(), temporary.open("wb") as file:
        torch.save(values, file)  # to an open file: given a path, PyTorch hides why it could not write


def save_model(model: nn.Module, folder: Path, figures: Mapping[str, float]) -> None:
    """`model.save_pretrained` into `folder`, which is replaced as a whole; `figures` are for its card."""
    if isinstance(model, Model) and model.trained is not None:
        model.trained = replace(model.trained, figures=tuple(figures.items()))
    with atomic_folder(folder) as temporary, surfaced_os_errors():
        model.save_pretrained(temporary)  # type: ignore[operator]


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read and check a checkpoint. Raises: SaccadeError if it is damaged, or of another format."""
    broken = SaccadeError(f"{path} is damaged or cut short; remove it to train from the start")
    try:
        with explain_os_errors(path, "read"), zipfile.ZipFile(path) as archive:
            check_archive(archive, path)
            whole = archive.testzip() is None  # PyTorch itself does not check the checksums
        values = load_torch(path, weights_only=True) if whole else None
    except SaccadeError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way
        raise broken from error
    if not whole:
        raise broken
    if not isinstance(values, dict) or any(key not in values for key in _KEYS):
        raise SaccadeError(f"{path} is not a checkpoint of this trainer")
    if values["format"] != FORMAT:
        raise SaccadeError(f"{path} has checkpoint format {values['format']}, this version reads format {FORMAT}")
    return values


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Put a checkpoint's weights into `model`, or say by name what does not fit."""
    own = model.state_dict()
    for name in dict.fromkeys((*own, *weights)):
        if name not in weights:
            raise SaccadeError(f'{path} belongs to another model: it has no weight "{name}"')
        if name not in own:
            raise SaccadeError(f'{path} belongs to another model: its weight "{name}" has no place in this one')
        theirs, ours = weights[name], own[name]
        if isinstance(ours, Tensor) and theirs.shape != ours.shape:
            raise SaccadeError(
                f'{path} belongs to another model: its weight "{name}" has shape {list(theirs.shape)}, '
                f"not {list(ours.shape)}"
            )
    model.load_state_dict(weights)
