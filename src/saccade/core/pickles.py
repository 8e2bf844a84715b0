"""Pickles of others, read without running anything in them: a list of names is known, all else is refused."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError, explain_os_errors

Allowed = Mapping[tuple[str, str], Any]  # (module, name) as pickled → what it becomes here


class _PlainReader(pickle.Unpickler):
    allowed: Allowed

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise SaccadeError(f"it wants to run {module}.{name}, which is not plain data")
        return self.allowed[module, name]


def read_pickle(path: Path | str, allowed: Allowed, what: str, encoding: str = "ASCII") -> Any:
    """What a pickle holds; `what` says what it should have been.

    Raises: SaccadeError if it is missing or damaged, or names anything beyond `allowed`.
    """
    path = Path(path)
    with explain_os_errors(path, "read"), path.open("rb") as file:
        reader = _PlainReader(file, encoding=encoding)
        reader.allowed = allowed
        try:
            return reader.load()
        except SaccadeError as error:
            raise SaccadeError(f"{path} is refused: {error}") from error
        except Exception as error:  # a damaged pickle may fail in any way
            raise SaccadeError(f"{path} is no {what}, or it is damaged") from error
