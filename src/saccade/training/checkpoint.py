"""What a run must remember to go on as if it had never stopped, written whole or not at all."""

from __future__ import annotations

import dataclasses
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError, explain_os_errors, surfaced_os_errors
from saccade.core.files import atomic_file, atomic_folder

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


def save_model(model: nn.Module, folder: Path) -> None:
    """`model.save_pretrained` into `folder`, which is replaced as a whole."""
    with atomic_folder(folder) as temporary, surfaced_os_errors():
        model.save_pretrained(temporary)  # type: ignore[operator]


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read and check a checkpoint; damage of any kind is reported in a sentence."""
    broken = SaccadeError(f"{path} is damaged or cut short; remove it to train from the start")
    try:
        with explain_os_errors(path, "read"), zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None  # PyTorch itself does not look at the checksums
        values = torch.load(path, map_location="cpu", weights_only=True) if whole else None
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
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
