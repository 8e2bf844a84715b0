"""Verification: what an official system computed, stage by stage, against what ours computes.

A verifier is a generator over the cases of a golden folder. It gets a `Case` with the stored arrays, takes inputs,
and compares outputs; any stored array that was neither taken nor compared nor excused makes the verification fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from saccade.core.errors import SaccadeError, did_you_mean

EMBEDDING, SIMILARITY, LOSS, GRADIENT = 1e-5, 1e-5, 1e-4, 1e-3  # allowed differences; of gradients relative


@dataclass(frozen=True)
class Stage:
    """One comparison: the largest absolute difference and how much is allowed."""

    case: str
    stage: str
    difference: float
    tolerance: float
    excuse: str = ""  # why a stored output does not apply; then nothing is compared

    @property
    def holds(self) -> bool:
        return bool(self.excuse) or self.difference <= self.tolerance


@dataclass
class Case:
    """The stored arrays of one case, and what became of each."""

    name: str
    stored: dict[str, np.ndarray]
    stages: list[Stage] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def take(self, key: str) -> np.ndarray:
        """A stored input (or an output wanted as an input)."""
        if key not in self.stored:
            raise SaccadeError(f'{self.name} has no "{key}"')
        self.used.add(key)
        return self.stored[key]

    def compare(self, key: str, found: Tensor | np.ndarray | float, tolerance: float, stage: str = "") -> None:
        """Our value against the stored one."""
        expected = np.asarray(self.take(key), dtype=np.float64)
        value = np.asarray(found.detach().cpu().numpy() if isinstance(found, Tensor) else found, dtype=np.float64)
        if value.shape != expected.shape:
            difference = float("inf")
        else:
            difference = float(np.abs(value - expected).max()) if value.size else 0.0
        self.stages.append(Stage(self.name, stage or key, difference, tolerance))

    def compare_stored(self, found: Mapping[str, Tensor | np.ndarray | float], tolerance: float) -> None:
        """Each of these outputs that the case stores."""
        for key, value in found.items():
            if key in self.stored:
                self.compare(key, value, tolerance)

    def excuse(self, key: str, reason: str) -> None:
        self.used.add(key)
        self.stages.append(Stage(self.name, key, 0.0, 0.0, reason))

    def check(self, stage: str, difference: float, tolerance: float) -> None:
        """A comparison that has no stored array of its own (two containers of one checkpoint, say)."""
        self.stages.append(Stage(self.name, stage, difference, tolerance))

    def finish(self) -> None:
        """Whatever was stored and not looked at fails."""
        for key in self.stored.keys() - self.used:
            self.stages.append(Stage(self.name, f"{key} (stored, never compared)", float("inf"), 0.0))


Verifier = Callable[[Path], Iterator[Case]]
_verifiers: dict[str, Verifier] = {}


def verifier(name: str) -> Callable[[Verifier], Verifier]:
    """Register the verifier of a golden folder of this name."""

    def add(function: Verifier) -> Verifier:
        _verifiers[name] = function
        return function

    return add


def names() -> list[str]:
    return sorted(_verifiers)


def verify(name: str, folder: Path | str) -> Iterator[Case]:
    """Every case of the folder, compared."""
    folder = Path(folder)
    if name not in _verifiers:
        raise SaccadeError(
            f'there is nothing to verify under the name "{name}"{did_you_mean(name, _verifiers)} '
            f"(there are: {', '.join(names())})"
        )
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is not a folder of golden cases")
    found = False
    for case in _verifiers[name](folder):
        found = True
        case.finish()
        yield case
    if not found:
        raise SaccadeError(f"{folder} holds no case for {name}")


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """An .npz without pickles."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise SaccadeError(f"{path} is no readable .npz file") from error
    except Exception as error:  # zipfile.BadZipFile and zlib.error have no common base
        raise SaccadeError(f"{path} is damaged or cut short") from error


def as_json(cases: list[Case]) -> dict[str, Any]:
    stages = [asdict(stage) | {"holds": stage.holds} for case in cases for stage in case.stages]
    return {"holds": all(s["holds"] for s in stages), "stages": stages}
