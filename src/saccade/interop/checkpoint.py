"""Official files, read safely: checkpoints, pickled modules, plain pickles and arrays, and the options they carry.

Checkpoints are pickles. They are read with PyTorch's restricted unpickler and a list of allowed names; anything else is
refused by name.
"""

from __future__ import annotations

import argparse
import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_pickle
from saccade.core.weights import load_torch

ALLOWED: list[Any] = [argparse.Namespace, (OrderedDict, "easydict.EasyDict")]  # bags of options; nothing in them is run


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """A `.pth.tar` of either container (zip or pre-1.6), CUDA storages mapped to the CPU, nothing unpickled blindly."""
    path = Path(path)
    if not path.is_file():
        raise SaccadeError(f"{path} does not exist")
    try:
        with torch.serialization.safe_globals(ALLOWED):
            checkpoint = load_torch(path, weights_only=True)
    except SaccadeError:
        raise
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL (\S+)", str(error))
        if wanted:
            raise SaccadeError(f"{path} is refused: it wants to run {wanted[1]}, which is not plain data") from error
        raise SaccadeError(f"{path} is no PyTorch checkpoint, or it is damaged") from error
    except Exception as error:  # a damaged pickle may fail in any way
        raise SaccadeError(f"{path} is no PyTorch checkpoint, or it is damaged or cut short") from error
    if not isinstance(checkpoint, dict):
        raise SaccadeError(f"{path} holds a {type(checkpoint).__name__}, a dictionary was expected")
    return checkpoint


def need(checkpoint: Mapping[str, Any], key: str, kind: type | tuple[type, ...], path: Path | str) -> Any:
    """A field of a checkpoint. Raises: SaccadeError if it is missing or of another kind."""
    if key not in checkpoint:
        raise SaccadeError(
            f'{path} is not the expected checkpoint: it has no "{key}" (it has {", ".join(map(str, checkpoint))})'
        )
    if not isinstance(checkpoint[key], kind):
        kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        found = type(checkpoint[key]).__name__
        raise SaccadeError(f'{path} is not the expected checkpoint: its "{key}" is a {found}, not a {kinds}')
    return checkpoint[key]


def state_dict(value: Any, path: Path | str, what: str) -> dict[str, Tensor]:
    """A mapping of names to tensors, with the prefix that nn.DataParallel adds taken off."""
    if not isinstance(value, Mapping) or not all(isinstance(v, Tensor) for v in value.values()):
        raise SaccadeError(f"{path}: {what} is not a mapping of names to tensors")
    return {str(key).removeprefix("module."): tensor for key, tensor in value.items()}


@dataclass(frozen=True)
class Options:
    """The options of an official command line, as a checkpoint stores them."""

    values: Mapping[str, Any]
    path: Path | str
    system: str

    @staticmethod
    def of(checkpoint: Mapping[str, Any], path: Path | str, system: str) -> Options:
        found = need(checkpoint, "opt", (argparse.Namespace, dict), path)
        return Options(vars(found) if isinstance(found, argparse.Namespace) else found, path, system)

    def __call__(self, name: str, table: Mapping[Any, Any] | None = None) -> Any:
        """The value of an option that must be there; with a table, what the table has for it."""
        if name not in self.values:
            raise SaccadeError(f'{self.path}: the options have no "{name}", so this is no {self.system} checkpoint')
        if table is None:
            return self.values[name]
        if self.values[name] not in table:
            expected = ", ".join(map(str, table))
            raise SaccadeError(f"{self.path}: {name} is {self.values[name]!r}, expected one of {expected}")
        return table[self.values[name]]

    def get(self, name: str, default: Any) -> Any:
        return self.values.get(name, default)


class _Nothing:
    """Stands in for what is not needed (a best score kept as a NumPy number); it takes anything and does nothing."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None: ...


PLAIN: dict[tuple[str, str], Any] = {
    ("argparse", "Namespace"): argparse.Namespace,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): lambda *_: {},  # without its factory
    **{(room, kind.__name__): kind for room in ("builtins", "__builtin__") for kind in (int, float, list, dict, set)},
    **{("numpy", name): _Nothing for name in ("dtype", "ndarray")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Nothing for core in ("core", "_core")},
    ("_codecs", "encode"): _Nothing,  # how old protocols write the bytes of such a number
}


def read_plain_pickle(path: Path | str) -> Any:
    """A pickle of plain containers, numbers, words and `argparse.Namespace`; anything else is refused by name."""
    return read_pickle(path, PLAIN, "pickle of plain data", encoding="latin1")


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
READ_AS_BAGS = (
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
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                if any(name.endswith("constants.pkl") for name in file.namelist()):
                    raise SaccadeError("it is a program (TorchScript), not a checkpoint")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = load_torch(path, weights_only=False, pickle_module=_reader(classes))
    except SaccadeError as error:
        raise SaccadeError(f"{path} is refused: {error}") from error
    except Exception as error:  # a damaged pickle may fail in any way
        raise SaccadeError(f"{path} is no PyTorch checkpoint, or it is damaged or cut short") from error
    if not isinstance(found, dict):
        raise SaccadeError(f"{path} holds a {type(found).__name__}, a dictionary was expected")
    return found


def _reader(classes: Sequence[str]) -> Any:
    """A pickle module for `torch.load` that knows plain containers and tensors, reads modules as bags, and no more.

    All stand-ins are made anew, so that nothing a file does to them outlives its reading.
    """
    known: dict[str, Any] = {"builtins.dict": dict, "builtins.set": set, "collections.OrderedDict": OrderedDict}
    known["collections.defaultdict"] = lambda *_: {}  # its factory is dropped
    known |= {f"torch.{name}": getattr(torch, name) for name in ("float32", "float64", "float16", "int64")}
    known |= {f"torch._utils.{name}": _builder(name) for name in BUILDERS}

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full = f"{module.replace('__builtin__', 'builtins')}.{name}"  # as Python 2 called it
            if full in (*classes, *READ_AS_BAGS):
                known.setdefault(full, type(name, (Bag,), {}))
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
    for kind in ("_parameters", "_buffers", "_modules"):
        table = vars(module).get(kind, {})
        if not isinstance(table, Mapping):
            raise SaccadeError(f"{path}: {what} is no module of PyTorch: its {kind} is a {type(table).__name__}")
        for name, value in ((name, value) for name, value in table.items() if value is not None):
            if kind == "_modules":
                inner = module_state(value, path, f"{name} of {what}")
                state |= {f"{name}.{key}": tensor for key, tensor in inner.items()}
            elif isinstance(value, Tensor):
                state[name] = value.detach()
            else:
                raise SaccadeError(f"{path}: {name} of {what} is a {type(value).__name__}, a tensor was expected")
    return {key.removeprefix("module."): value for key, value in state.items()}
