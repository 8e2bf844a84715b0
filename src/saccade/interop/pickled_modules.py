"""Checkpoints that pickle whole modules instead of their weights: read as bags of state, none of their code run.

Every class on the list below is replaced by a bag that takes whatever it is given and does nothing with it; PyTorch's
restricted unpickler fills the bags with tensors. Any name that is not on the list is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.errors import SaccadeError
from saccade.interop.checkpoint import read_checkpoint


class Bag:
    """Stands in for a module or an optimiser; its attributes are what was pickled."""

    def __init__(self, *_: object) -> None: ...


class _Plain(dict[Any, Any]):
    """Stands in for a defaultdict: its factory is dropped."""

    def __init__(self, *_: object) -> None:
        super().__init__()


LAYERS = {  # of torch.nn.modules
    "activation": ("ReLU", "Sigmoid", "Softmax", "LogSoftmax", "Tanh"),
    "batchnorm": ("BatchNorm2d",),
    "container": ("ModuleList", "Sequential"),
    "conv": ("Conv2d",),
    "dropout": ("Dropout",),
    "linear": ("Linear", "Identity"),
    "pooling": ("AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d"),
    "rnn": ("LSTMCell", "GRUCell"),
    "sparse": ("Embedding",),
}
NAMES = (
    *(f"torch.nn.modules.{module}.{name}" for module, names in LAYERS.items() for name in names),
    *(f"torchvision.models.resnet.{name}" for name in ("ResNet", "BasicBlock", "Bottleneck")),
    *(f"torch.optim.{name}" for name in ("adam.Adam", "sgd.SGD", "rmsprop.RMSprop")),
)


def read_modules(path: Path | str, classes: Sequence[str]) -> dict[str, Any]:
    """A checkpoint with modules as `Bag`s; `classes` are its own, as in "models.DecoderWithAttention"."""
    bags = [type(name.rpartition(".")[2], (Bag,), {}) for name in (*NAMES, *classes)]
    allowed: list[Any] = list(zip(bags, (*NAMES, *classes), strict=True))
    plain = [(_Plain, "collections.defaultdict"), (dict, "builtins.dict"), (set, "builtins.set")]
    with warnings.catch_warnings():  # old containers keep the source of a class, which no bag has
        warnings.simplefilter("ignore")
        return read_checkpoint(path, [*allowed, *plain])


def module_state(module: Any, path: Path | str, what: str) -> dict[str, Tensor]:
    """The parameters and buffers in a bag and the bags inside it, named as a state dict names them."""
    if not isinstance(module, Bag):
        raise SaccadeError(f"{path}: {what} is a {type(module).__name__}, a module was expected")
    state: dict[str, Tensor] = {}
    for kind in ("_parameters", "_buffers"):
        for name, value in _table(module, kind, path, what).items():
            if value is not None and not isinstance(value, Tensor):
                raise SaccadeError(f"{path}: {name} of {what} is a {type(value).__name__}, a tensor was expected")
            if value is not None:
                state[name] = value.detach()
    for name, part in _table(module, "_modules", path, what).items():
        if part is not None:
            inner = module_state(part, path, f"{name} of {what}")
            state.update({f"{name}.{key}": value for key, value in inner.items()})
    return {key.removeprefix("module."): value for key, value in state.items()}


def _table(module: Bag, kind: str, path: Path | str, what: str) -> Mapping[str, Any]:
    found = vars(module).get(kind, {})
    if not isinstance(found, Mapping):
        raise SaccadeError(f"{path}: {what} is no module of PyTorch: its {kind} is a {type(found).__name__}")
    return found
