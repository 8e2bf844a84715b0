"""What tests of search share: kernels on a CPU, in Triton's interpreter, where there is no GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are first imported; nothing compiles here anyway

from saccade.ops import gpu
from saccade.ops.dispatch import everywhere
from saccade.search.maxsim import MAXSIM


@pytest.fixture
def use_kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on MaxSim runs as on a GPU."""

    def use() -> None:
        monkeypatch.setattr(gpu, "refuses", lambda _: None)
        monkeypatch.setattr(MAXSIM, "backends", tuple(replace(row, available=everywhere) for row in MAXSIM.backends))

    return use
