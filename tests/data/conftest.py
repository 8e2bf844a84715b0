"""A disk that runs full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`full_disk(n)`: the n-th file that is finished from now on meets a full disk."""

    def arm(after: int = 1) -> None:
        left = after
        real = os.fsync

        def fsync(handle: int) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    return arm
