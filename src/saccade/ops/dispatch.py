"""Which backend computes an operator, and why: an ordered table of rows for each of them.

    attended = Operator("attended_similarity", (
        Backend("triton", suits=…, run=…, available=…),
        Backend("torch", suits=anything, run=…),           # the last row suits every problem
    ))
    table = attended(problem)

The first row that suits is taken. What suits hangs on the problem (sizes, precision, device, form, whether a gradient
is wanted), on the machine and on the switches SACCADE_KERNELS and SACCADE_NATIVE; never on what an earlier run left on
disk. `SACCADE_LOG=ops` prints each choice once per operator and shape, `with backend("torch"):` forces a row, and
`saccade doctor` prints the tables.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    import torch


class Problem(Protocol):
    """The typed inputs of one call."""

    def describe(self) -> str:
        """What the choice of a backend hangs on, in a few words: `float16, 36 regions`."""


P = TypeVar("P", bound=Problem)
R = TypeVar("R")

OPERATORS: dict[str, Operator[Any, Any]] = {}  # all that have been defined, by name
_forced: ContextVar[str | None] = ContextVar("forced backend", default=None)
_logged: set[str] = set()


def anything(_: object) -> None:
    """Suits every problem."""


def everywhere() -> None:
    """Available on every machine."""


@dataclass(frozen=True)
class Backend(Generic[P, R]):
    """One way to compute an operator."""

    name: str  # "cuda epilogue", "triton", "native", "torch"
    suits: Callable[[P], str | None]  # None: it can do this problem; else the reason why not
    run: Callable[[P], R]
    available: Callable[[], str | None] = everywhere  # the same for this machine, whatever the problem

    def reason(self, problem: P) -> str | None:
        """Why it cannot do a problem here; None if it can."""
        return self.suits(problem) or self.available()


class Operator(Generic[P, R]):
    """A function with several backends, the preferred one first; the last suits every problem.

    `reduced` is the 16-bit type in which a GPU computes it much sooner and nearly right, for two-stage scoring.
    """

    def __init__(self, name: str, backends: Sequence[Backend[P, R]], reduced: torch.dtype | None = None) -> None:
        self.name, self.backends, self.reduced = name, tuple(backends), reduced
        OPERATORS[name] = self

    def __call__(self, problem: P) -> R:
        return self.chosen(problem).run(problem)

    def chosen(self, problem: P) -> Backend[P, R]:
        """The row that computes a problem.

        Raises: SaccadeError if a forced backend does not suit it.
        """
        forced = _forced.get()
        for row in self.backends:
            if row.name == forced and (reason := row.reason(problem)) is not None:
                raise SaccadeError(f'{self.name} cannot run on the backend "{forced}": {reason}')
            if row.name == forced:
                return self._logged(row, problem)
        chosen = next((row for row in self.backends[:-1] if row.reason(problem) is None), self.backends[-1])
        return self._logged(chosen, problem)

    def _logged(self, chosen: Backend[P, R], problem: P) -> Backend[P, R]:
        if os.environ.get("SACCADE_LOG") == "ops":
            _log(f"{self.name}: {chosen.name}, {problem.describe()}")
        return chosen


@contextmanager
def backend(name: str) -> Iterator[None]:
    """While it lasts, every operator that has a row of this name takes it; the others choose as always.

    Raises: SaccadeError if no operator has one, or (when called) if the row does not suit the problem.
    """
    names = {row.name for operator in OPERATORS.values() for row in operator.backends}
    if name not in names:
        raise SaccadeError(f'no operator has a backend "{name}": there are {", ".join(sorted(names))}')
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


def _log(line: str) -> None:
    if line not in _logged:
        _logged.add(line)
        print(line, file=sys.stderr)
