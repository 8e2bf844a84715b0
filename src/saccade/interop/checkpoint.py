"""Official checkpoints are pickles. They are read with PyTorch's restricted unpickler and a list of allowed names."""

from __future__ import annotations

import argparse
import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.core.errors import SaccadeError

ALLOWED: list[Any] = [argparse.Namespace, (OrderedDict, "easydict.EasyDict")]  # bags of options; nothing in them is run


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """A `.pth.tar` of either container (zip or pre-1.6), CUDA storages mapped to the CPU, nothing unpickled blindly."""
    path = Path(path)
    if not path.is_file():
        raise SaccadeError(f"{path} does not exist")
    try:
        with torch.serialization.safe_globals(ALLOWED):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted:
            raise SaccadeError(f"{path} is refused: it wants to run {wanted[1]}, which is not plain data") from error
        raise SaccadeError(f"{path} is no PyTorch checkpoint, or it is damaged") from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, AttributeError, IndexError, TypeError) as error:
        raise SaccadeError(f"{path} is no PyTorch checkpoint, or it is damaged or cut short") from error
    if not isinstance(checkpoint, dict):
        raise SaccadeError(f"{path} holds a {type(checkpoint).__name__}, a dictionary was expected")
    return checkpoint


def need(checkpoint: Mapping[str, Any], key: str, kind: type | tuple[type, ...], path: Path | str) -> Any:
    """A field of a checkpoint, or a sentence on what is missing."""
    if key not in checkpoint:
        raise SaccadeError(
            f'{path} is not the expected checkpoint: it has no "{key}" (it has {", ".join(map(str, checkpoint))})'
        )
    if not isinstance(checkpoint[key], kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise SaccadeError(
            f'{path} is not the expected checkpoint: its "{key}" is a {type(checkpoint[key]).__name__}, '
            f"not a {' or '.join(each.__name__ for each in kinds)}"
        )
    return checkpoint[key]


def state_dict(value: Any, path: Path | str, what: str) -> dict[str, Tensor]:
    """A mapping of names to tensors, with the prefix that nn.DataParallel adds taken off."""
    if not isinstance(value, Mapping) or not all(isinstance(v, Tensor) for v in value.values()):
        raise SaccadeError(f"{path}: {what} is not a mapping of names to tensors")
    return {str(key).removeprefix("module."): tensor for key, tensor in value.items()}


def state_dicts(
    checkpoint: Mapping[str, Any], path: Path | str, system: str, parts: tuple[str, ...]
) -> list[dict[str, Tensor]]:
    """The parts of a checkpoint whose "model" is a list of state dicts."""
    found = need(checkpoint, "model", (list, tuple), path)
    if len(found) != len(parts):
        raise SaccadeError(
            f'{path}: "model" has {len(found)} parts, a {system} checkpoint has {len(parts)} ({", ".join(parts)})'
        )
    return [state_dict(part, path, f"the part for {name}") for part, name in zip(found, parts, strict=True)]


def load_official(module: nn.Module, state: Mapping[str, Tensor], path: Path | str) -> None:
    """Weights into a module of the same shapes, or a sentence on what does not fit."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise SaccadeError(f"{path}: the weights do not fit the options: {reason}") from error
