"""Options that are the same for every command that has them: `--device`, `--model`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.language import Vocabulary


class NumberType(str, Enum):
    """How features are kept."""

    float32 = "float32"
    float16 = "float16"


def check_device(name: str) -> str:
    """The name of a device that works here; `auto` is the GPU if there is one.

    Raises: SaccadeError if there is no such device.
    """
    if name == "cpu":  # known without asking PyTorch, which takes a while to come
        return name
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if torch.device(name).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # the second, where PyTorch was built without CUDA
        why = (str(error).splitlines() or ["unknown"])[0].rstrip(".")
        raise SaccadeError(f'there is no device "{name}" here ({why}): try --device cpu') from error
    return name


Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Where the network runs: cpu, cuda, cuda:1 …; auto: on the GPU if there is one.",
        callback=check_device,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A run or model folder, or a model of the package (scan-flickr8k). If not given: runs/scan, or else that.",
    ),
]


def default_model() -> str:
    """What was trained last with the default folder; or the matcher for photographs that comes with the package."""
    return "runs/scan" if Path("runs/scan").exists() else "scan-flickr8k"


def report_unknown(vocabulary: Vocabulary, texts: list[str]) -> None:
    """Say on standard error which words the model has never seen; refuse a sentence of only such words."""
    words = sorted({word for text in texts for word in vocabulary.check(text)})
    if words:
        typer.echo(f"note: the model does not know {', '.join(words)}", err=True)
