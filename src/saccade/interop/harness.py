"""Verification: what an official system computed, stage by stage, against what ours computes.

A `Golden` is a table from stored keys to expressions: for every array of a case that a row's pattern matches, the
expression gives our value, which must lie within the row's tolerance. A stored array that no row compares, takes as an
input or excuses makes the verification fail.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import RegionBatch
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError

# Allowed differences, absolute. The official outputs are float32, whose rounding grows with the sums behind a value.
EMBEDDING, SIMILARITY, LOSS = 1e-5, 1e-5, 1e-4
GRADIENT = 1e-3  # of gradients, relative
F = TypeVar("F", bound=Callable[..., Any])


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
        """A stored input (or an output wanted as an input). Raises: SaccadeError if there is none."""
        if key not in self.stored:
            raise SaccadeError(f'{self.name} has no "{key}"')
        self.used.add(key)
        return self.stored[key]

    def tensor(self, key: str) -> Tensor:
        return torch.from_numpy(self.take(key))

    def check(self, stage: str, difference: float, tolerance: float, excuse: str = "") -> None:
        """A comparison that has no stored array of its own (two containers of one checkpoint, say)."""
        self.stages.append(Stage(self.name, stage, float(difference), float(tolerance), excuse))


def case_folders(folder: Path) -> Iterator[tuple[Path, dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """The folder and those in it that hold a case: where it is, its io.npz, and its grads.npz if there is one."""
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / "io.npz").is_file():
            gradients = place / "grads.npz"
            yield place, read_npz(place / "io.npz"), read_npz(gradients) if gradients.is_file() else {}


def difference(found: Any, expected: Any) -> float:
    """The largest absolute difference; infinite where the shapes differ."""
    one, other = (
        np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, dtype=np.float64)
        for value in (found, expected)
    )
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one - other).max(initial=0.0))


def memo(method: F) -> F:
    """Let a method of a case remember what it computed for each of its arguments."""

    @functools.wraps(method)
    def remembered(self: Any, *given: Any) -> Any:
        kept = self.__dict__.setdefault("_remembered", {})
        if (method, given) not in kept:
            kept[method, given] = method(self, *given)
        return kept[method, given]

    return cast("F", remembered)


def fitted(value: Tensor, shape: Sequence[int], fill: float = 0) -> Tensor:
    """More padding behind, up to a stored shape, or less if it is padding alone that goes.

    Official code pads to the longest of other things.
    """
    for axis, size in enumerate(shape[: value.dim()]):
        missing = size - value.shape[axis]
        if missing > 0:
            more = [missing if n == axis else length for n, length in enumerate(value.shape)]
            value = torch.cat([value, value.new_full(more, fill)], dim=axis)
        elif missing < 0 and bool((value.narrow(axis, size, -missing) == fill).all()):
            value = value.narrow(axis, 0, size)
    return value


def unmasked(features: Float[Tensor, "image region dim"]) -> RegionBatch:
    """Pictures of equally many regions, whose boxes no case here holds."""
    count = features.shape[:2]
    return RegionBatch(features, torch.ones(count, dtype=torch.bool), features.new_zeros(*count, 4))


@dataclass(frozen=True)
class Difference:
    """An expression that compares by itself: how far apart, and its own tolerance where it has one."""

    value: float
    tolerance: float | None = None


@dataclass(frozen=True)
class Excuse:
    """The stored array does not apply, for this reason."""

    reason: str


Tolerance = float | Callable[[np.ndarray], float]  # of the stored array
# (opened case, the pattern's groups …) → our value, a Difference, an Excuse, {stage: value} for several of one array,
# or None where the row turns out to know nothing of this array, which then fails
Expression = Callable[..., Any]
Table = Mapping[str, tuple[Expression, Tolerance]]  # a key is a regular expression for the whole of a stored key


def of_gradient(stored: np.ndarray | float, floor: float = 1e-5) -> float:
    """For the norm of a gradient: relative, but those that are zero in exact arithmetic hold rounding noise alone."""
    return GRADIENT * float(stored) if float(stored) > 1e-3 else floor


def gradient_difference(found: Tensor, stored: Tensor) -> Difference:
    """Of a gradient in double precision, relative to its norm where that is above 1."""
    if found.shape != stored.shape:
        return Difference(float("inf"))
    return Difference(float((found - stored).norm()) / max(1.0, float(stored.norm())))


def gradient_norms(
    case: Case, key: str, names: str, found: Mapping[str, Tensor], floor: float = 1e-5
) -> dict[str, Difference]:
    """An array of norms, each relative to itself; a weight that has no place here must have none."""
    norms = {name: float(gradient.norm()) for name, gradient in found.items()}
    return {
        f"{key}__{name}": Difference(abs(norms.get(name, float("inf")) - norm), of_gradient(norm, floor))
        for name, norm in zip(case.take(names).tolist(), case.stored[key].tolist(), strict=True)
    }


@dataclass(frozen=True)
class Golden:
    name: str
    open: Callable[[Path], Iterable[Any]]  # the cases of a folder, each with a `case` whose inputs are taken
    table: Table
    required: Callable[[Case], Iterable[str]] = lambda case: ()  # keys without which a case is not whole

    def verify(self, folder: Path | str) -> Iterator[Case]:
        """Every case of the folder, compared. Raises: SaccadeError if there is none or one is not whole."""
        folder = Path(folder)
        if not folder.is_dir():
            raise SaccadeError(f"{folder} is not a folder of golden cases")
        found = False
        for opened in self.open(folder):
            found, case = True, opened.case
            for key in self.required(case):
                if key not in case.stored:
                    raise SaccadeError(f'{case.name} has no "{key}"')
            with torch.no_grad():
                for pattern, (expression, tolerance) in self.table.items():
                    for key in [*case.stored]:
                        if matched := re.fullmatch(pattern, key):
                            self._compare(case, key, expression(opened, *matched.groups()), tolerance)
            for key in case.stored.keys() - case.used:
                case.check(f"{key} (stored, never compared)", float("inf"), 0.0)
            yield case
        if not found:
            raise SaccadeError(f"{folder} holds no case for {self.name}")

    @staticmethod
    def _compare(case: Case, key: str, found: Any, tolerance: Tolerance) -> None:
        if found is None:
            return
        stored = case.take(key)
        if isinstance(found, Excuse):
            case.check(key, 0.0, 0.0, found.reason)
            return
        allowed = tolerance(stored) if callable(tolerance) else tolerance
        for stage, value in (found if isinstance(found, dict) else {key: found}).items():
            if not isinstance(value, Difference):
                value = Difference(difference(value, stored))
            case.check(stage, value.value, allowed if value.tolerance is None else value.tolerance)


def as_json(cases: list[Case]) -> dict[str, Any]:
    stages = [asdict(stage) | {"holds": stage.holds} for case in cases for stage in case.stages]
    return {"holds": all(s["holds"] for s in stages), "stages": stages}
