"""Where mixed precision ends: lengths, softmaxes, gates and scores are computed in full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(vectors: Float[Tensor, "*items dim"]) -> Float[Tensor, "*items dim"]:
    """Codes leave the mixed-precision part here: lengths and softmaxes in bfloat16 would be off by a percent."""
    return vectors.float() if vectors.dtype in (torch.bfloat16, torch.float16) else vectors


def full_precision(like: Tensor) -> torch.autocast:
    """A block out of mixed precision, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False)


def plainly_on_cpu(like: Tensor) -> bool:
    """Work that cores can share out: on a CPU, with no gradient to gather and no precision that a thread would lose."""
    on_cpu = like.device.type == "cpu"
    return on_cpu and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def present_precision(like: Tensor) -> torch.autocast:
    """The precision of this moment, for a block that is run again later. It remembers no weight in its short form:
    one made without gradients would be used with them."""
    device = like.device.type
    dtype, enabled = torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
    return torch.autocast(device, dtype, enabled, cache_enabled=False)


_in_bytes = ContextVar("in_bytes", default=False)


@contextmanager
def byte_products() -> Iterator[None]:
    """While it lasts, products whose vectors differ for every pair may be taken in 8-bit integers and scores in 16-bit
    ones, on a CPU that multiplies these faster, without gradients. Scores are then off by some thousandths of their
    spread."""
    token = _in_bytes.set(True)
    try:
        yield
    finally:
        _in_bytes.reset(token)


def in_bytes() -> bool:
    """Whether `byte_products` are wanted."""
    return _in_bytes.get()
