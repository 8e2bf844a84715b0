"""Weights on disk: our own safetensors files, and the tensors of PyTorch and Paddle. Nothing in them is ever executed.

Our own are kept in full, in half, or in bytes (`int8`) for what ships with the package: each row of a matrix as whole
numbers −127..127 and one scale, a quarter of the size and off by at most 1/254 of the row's largest number. Vectors
(biases, normalisations) are few and stay in half precision.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from saccade.core.errors import SaccadeError, explain_os_errors, surfaced_os_errors
from saccade.core.files import atomic_file, check_archive

Form = Literal["float32", "float16", "int8"]
SCALE = "::scale"  # beside each tensor that is kept in bytes
N = TypeVar("N", bound=nn.Module)
FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange, torch.linspace)
DRAWN = {nn.init.kaiming_uniform_, nn.init.uniform_, nn.init.normal_, Tensor.uniform_, Tensor.normal_}  # in place


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


def held_shapes(*paths: Path) -> list[tuple[int, ...]]:
    """The shapes of all tensors in our files, by their heads alone. Raises: SaccadeError if one is damaged."""
    found: list[tuple[int, ...]] = []
    for path in paths:
        try:
            with explain_os_errors(path, "read"), safetensors.safe_open(path, "pt") as file:
                found += [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        except (safetensors.SafetensorError, ValueError) as error:
            raise SaccadeError(f"{path} is damaged or cut short: {error}") from error
    return found


def build_within(build: Callable[[], N], held: Collection[Sequence[int]], path: Path | str) -> N:
    """The network of some settings, if it is about as large as the weights of these shapes that `path` holds.

    A width or a number of layers in a settings file costs nothing to write: every tensor that is made while building is
    counted before it is made. Initialisations draw no numbers, since the weights take their place: they leave zeros.

    Raises: SaccadeError if the network would be larger, or cannot be built.
    """
    try:
        with _Budget(held, path):
            return build()
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise SaccadeError(f"{path}: the network that its settings describe cannot be built") from error


class _Budget(TorchFunctionMode):
    """Fresh networks may be larger than their weights on disk, where normalisations are folded and some are shared."""

    def __init__(self, held: Collection[Sequence[int]], path: Path | str) -> None:
        super().__init__()
        self.numbers, self.tensors, self.path = 4 * sum(map(math.prod, held)) + (1 << 22), 16 * len(held) + 4096, path

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES:
            sizes = kwargs.get("size", args[0] if args and isinstance(args[0], tuple | list) else args)
            self.numbers -= math.prod(size for size in sizes if isinstance(size, int))
            self.tensors -= 1
            if min(self.numbers, self.tensors) < 0:
                raise SaccadeError(f"{self.path} holds weights of a smaller network than its settings describe")
        if func in DRAWN:
            return (kwargs["tensor"] if "tensor" in kwargs else args[0]).detach().zero_()
        return func(*args, **kwargs)


def check_values(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path | str) -> None:
    """Raises: SaccadeError if weights hold NaN or infinity, or whole numbers where fractions are wanted."""
    for name, value in state.items():
        if name in wanted and value.is_floating_point() != wanted[name].is_floating_point():
            kinds = (str(one.dtype).removeprefix("torch.") for one in (value, wanted[name]))
            raise SaccadeError("{}: {} holds {}, {} was expected".format(path, name, *kinds))
        if value.is_floating_point() and not value.sum().isfinite() and not value.isfinite().all():
            raise SaccadeError(f"{path}: {name} holds NaN or infinity")


def load_torch(path: Path, **options: Any) -> Any:
    """What a file of `torch.save` holds, on the CPU. `options` say who unpickles.

    Raises: SaccadeError if it is missing or would unpack to too much, and whatever PyTorch raises if it is damaged.
    """
    with explain_os_errors(path, "read"):
        with path.open("rb") as file:
            packed = file.read(2) == b"PK"
        if packed:
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, path)
        found = torch.load(path, map_location="cpu", **options)
    _refuse_views(found, path)
    return found


def _refuse_views(value: Any, path: Path) -> None:
    """A tensor of a file may repeat one number a million million times without holding it: no checkpoint does."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tensor):
            if one.layout == torch.strided and one.nbytes > one.untyped_storage().nbytes():
                raise SaccadeError(f"{path} holds a tensor of shape {list(one.shape)} without its numbers")
        elif id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, Mapping):
                waiting += one.values()
            elif isinstance(one, list | tuple | set):
                waiting += one
            elif hasattr(one, "__dict__") and not isinstance(one, type):
                waiting += vars(one).values()


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a PyTorch file by name, on the CPU.

    Raises: SaccadeError if the file is missing, damaged, or holds more than tensors.
    """
    try:
        state = load_torch(path, weights_only=True)
    except SaccadeError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way
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
