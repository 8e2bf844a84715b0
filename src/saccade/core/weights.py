"""Weights on disk: our own safetensors files, and the tensors of PyTorch and Paddle. Nothing in them is ever executed.

Our own are kept in full, in half, or in bytes (`int8`) for what ships with the package: each row of a matrix as whole
numbers −127..127 and one scale, a quarter of the size and off by at most 1/254 of the row's largest number. Vectors
(biases, normalisations) are few and stay in half precision.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError, explain_os_errors, surfaced_os_errors
from saccade.core.files import atomic_file

Form = Literal["float32", "float16", "int8"]
SCALE = "::scale"  # beside each tensor that is kept in bytes


def write_weights(
    path: Path | str,
    state: Mapping[str, Tensor],
    form: Form = "float32",
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors under their names; numbers that are not floating-point stay as they are."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        value = value.detach().cpu().contiguous()
        if not value.is_floating_point() or form == "float32":
            found[name] = value
        elif form == "float16" or value.ndim < 2:
            found[name] = value.half()
        else:
            found[name], found[name + SCALE] = _to_bytes(value.float())
    with atomic_file(path) as temporary, surfaced_os_errors():
        safetensors.torch.save_file(found, temporary, metadata={"format": "pt", **(metadata or {})})


def read_weights(path: Path | str, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a file (whose names begin with `prefix`), whichever form it has; half precision and bytes come
    back as float32.

    Raises: SaccadeError if the file is missing or damaged.
    """
    path = Path(path)
    if not path.exists():
        raise SaccadeError(f"{path} does not exist")
    try:
        kept = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise SaccadeError(f"{path} is damaged or cut short: {error}") from error
    found = {}
    for name, value in kept.items():
        if name.endswith(SCALE) or not name.startswith(prefix):
            continue
        scale = kept.get(name + SCALE)
        if scale is not None:
            found[name] = value.float() * scale.float().view(-1, *[1] * (value.ndim - 1))
        else:
            found[name] = value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    return found


def _to_bytes(value: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers, and the scale of each row."""
    scale = value.flatten(1).abs().amax(dim=1).clamp(min=1e-12) / 127
    whole = (value / scale.view(-1, *[1] * (value.ndim - 1))).round().clamp(-127, 127)
    return whole.to(torch.int8), scale


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a PyTorch file by name, on the CPU.

    Raises: SaccadeError if the file is missing, damaged, or holds more than tensors.
    """
    try:
        with explain_os_errors(path, "read"):
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError) as error:
        raise SaccadeError(f"{path} is damaged or holds more than tensors") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise SaccadeError(f"{path} holds something else than tensors by name")
    return dict(state)


FLOAT32 = 5  # as Paddle numbers the types of tensors


def read_paddle(path: Path) -> dict[str, Tensor]:
    """The tensors of Paddle's .pdiparams, which has no names: they are numbered, `0000`, `0001` …

    Each is a head of 20 bytes (two versions, no level of detail, the length of what follows), its type and shape as a
    protocol buffer, and its numbers.

    Raises: SaccadeError if the file is missing, damaged, or holds anything but float32.
    """
    with explain_os_errors(path, "read"):
        data = bytearray(path.read_bytes())
    found: dict[str, Tensor] = {}
    place = 0
    try:
        while place < len(data):
            version, levels, tensor_version, length = struct.unpack_from("<IQIi", data, place)
            place += 20
            kind, *shape = _numbers(data[place : place + length])
            place += length
            count = math.prod(shape)
            if version or levels or tensor_version or kind != FLOAT32 or place + 4 * count > len(data):
                raise ValueError
            numbers = torch.frombuffer(data, dtype=torch.float32, count=count, offset=place)
            found[f"{len(found):04}"] = numbers.clone().view(shape)
            place += 4 * count
    except (struct.error, IndexError, ValueError) as error:
        raise SaccadeError(f"{path} is damaged, or not a .pdiparams file of float32") from error
    return found


def _numbers(message: bytearray) -> list[int]:
    """The whole numbers of a protocol buffer that holds nothing else, in order."""
    found, value, shift = [], 0, 0
    for byte in message:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value = shift = 0
    return found[1::2]  # each after the number of its field
