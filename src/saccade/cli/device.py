"""`--device`, the same for every command that has it."""

from __future__ import annotations

from typing import Annotated

import typer

from saccade.core.errors import SaccadeError


def check_device(name: str) -> str:
    """The name of a device that works here, or a sentence."""
    if name == "cpu":  # known without asking PyTorch, which takes a while to come
        return name
    import torch

    try:
        if torch.device(name).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # the second, where PyTorch was built without CUDA
        why = (str(error).splitlines() or ["unknown"])[0].rstrip(".")
        raise SaccadeError(f'there is no device "{name}" here ({why}): try --device cpu') from error
    return name


Device = Annotated[
    str, typer.Option("--device", help="Where the network runs: cpu, cuda, cuda:1 …", callback=check_device)
]
