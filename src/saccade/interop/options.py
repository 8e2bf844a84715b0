"""The options of an official command line, which checkpoints carry with them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.interop.checkpoint import need


@dataclass(frozen=True)
class Options:
    """The options of an official command line, as a checkpoint stores them."""

    values: Mapping[str, Any]
    path: Path | str
    system: str

    @staticmethod
    def of(checkpoint: Mapping[str, Any], path: Path | str, system: str) -> Options:
        found = need(checkpoint, "opt", (Namespace, dict), path)
        return Options(vars(found) if isinstance(found, Namespace) else found, path, system)

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
