"""Checkpoints that pickle whole modules instead of their weights: read as bags of state, none of their code run.

Every class on the list below is replaced by a bag that takes whatever it is given and does nothing with it; tensors are
PyTorch's. Any name that is not on the list is refused. PyTorch's own restricted unpickler does not serve here: it
refuses modules in the container of before 1.6, which is what people have.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError


class Bag:
    """Stands in for a module or an optimiser; its attributes are what was pickled."""

    dump_patches = False  # old containers keep the source of a class, and PyTorch asks this where it has changed

    def __init__(self, *_: object) -> None: ...


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
    "argparse.Namespace",
    "torch.nn.backends.thnn._get_thnn_function_backend",  # an attribute of all modules before PyTorch 1.2
)
BUILDERS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")  # of torch._utils


def read_modules(path: Path | str, classes: Sequence[str]) -> dict[str, Any]:
    """A checkpoint with modules as `Bag`s; `classes` are its own, as in "models.DecoderWithAttention"."""
    path = Path(path)
    if not path.is_file():
        raise SaccadeError(f"{path} does not exist")
    try:
        if zipfile.is_zipfile(path) and any(name.endswith("constants.pkl") for name in _files(path)):
            raise SaccadeError("it is a program (TorchScript), not a checkpoint")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(path, map_location="cpu", weights_only=False, pickle_module=_reader(classes))
    except SaccadeError as error:
        raise SaccadeError(f"{path} is refused: {error}") from error
    except Exception as error:  # a damaged pickle may fail in any way
        raise SaccadeError(f"{path} is no PyTorch checkpoint, or it is damaged or cut short") from error
    if not isinstance(found, dict):
        raise SaccadeError(f"{path} holds a {type(found).__name__}, a dictionary was expected")
    return found


def _files(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as file:
        return file.namelist()


def _reader(classes: Sequence[str]) -> Any:
    """A pickle module for `torch.load` that knows the names above and `classes`, and no others.

    All stand-ins are made anew, so that nothing a file does to them outlives its reading.
    """
    known: dict[str, Any] = {name: type(name.rpartition(".")[2], (Bag,), {}) for name in (*NAMES, *classes)}
    known |= {f"torch._utils.{name}": _builder(name) for name in BUILDERS}
    known |= {"builtins.dict": dict, "builtins.set": set, "collections.OrderedDict": OrderedDict}
    known["collections.defaultdict"] = lambda *_: {}  # its factory is dropped
    for name in ("float32", "float64", "float16", "int64"):
        known[f"torch.{name}"] = getattr(torch, name)

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full = f"{module.replace('__builtin__', 'builtins')}.{name}"  # as Python 2 called it
            if full not in known:
                raise SaccadeError(f"it wants to run {full}, which is not plain data")
            return known[full]

    reader = ModuleType("bags")
    reader.__dict__.update(Unpickler=Reader, load=lambda file, **options: Reader(file, **options).load())
    return reader


def _builder(name: str) -> Callable[..., Any]:
    build: Callable[..., Any] = getattr(torch._utils, name)
    return lambda *given: build(*given)


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
