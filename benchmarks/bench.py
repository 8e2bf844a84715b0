"""Where and how large to measure, and how a list of cases is run: what fails says so, and the others go on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TypeVar

import torch

from benchmarks import timing
from benchmarks.rows import Growth, Result, Row
from benchmarks.timing import Run
from saccade.data import DataConfig

T = TypeVar("T")


@dataclass(frozen=True)
class Bench:
    """A device; and whether sizes are tiny, to see that everything works, or those that count."""

    device: str = "cpu"
    quick: bool = False
    photographs: tuple[DataConfig, str] | None = None  # with a model that knows them, for recall

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.quick else full

    def best_of(
        self, named: Mapping[str, Run], runs: int = 5, limit: float = 12.0, warm: bool = False
    ) -> dict[str, float]:
        return timing.best_of(self.device, named, 1 if self.quick else runs, limit, warm)

    def peak(self, run: Callable[[], T]) -> tuple[T, int | None]:
        return timing.peak(self.device, run)

    def bandwidth(self) -> float:
        return timing.bandwidth(self.device, 0.01 if self.quick else None)


@dataclass(frozen=True)
class Case:
    """Something to measure, by its name; `axis` where it is growth that is measured."""

    name: str
    measure: Callable[[], Result]
    axis: str = ""

    def failed(self, sentence: str) -> Result:
        return Growth(self.name, self.axis, failed=sentence) if self.axis else Row(self.name, failed=sentence)


Subject = Callable[[Bench], Iterable[Case]]


class OutOfTime(BaseException):
    """A case that took longer than it may; not an `Exception`, which whatever is running might catch."""


def measure(
    subjects: Mapping[str, Subject], bench: Bench, minutes: float, each: float, tell: Callable[[Result], None]
) -> Iterator[Result]:
    """Case after case; none may take more than `each` seconds, and after `minutes` no other is begun."""
    begun = time.monotonic()
    for name, subject in subjects.items():
        for case in subject(bench):
            if time.monotonic() - begun > 60 * minutes:
                result = case.failed(f"not begun: the {minutes:g} minutes of the run were over")
            else:
                result = attempt(case, each)
            if isinstance(result, Row):
                result = replace(result, subject=name)
            if bench.device == "cuda":
                torch.cuda.empty_cache()
            tell(result)
            yield result


def attempt(case: Case, limit: float) -> Result:
    """A result whatever happens: without figures, but with the reason, where it fails."""
    try:
        with alarm(limit):
            result = case.measure()
    except OutOfTime:
        return case.failed(f"stopped after {limit:g} seconds")
    except Exception as error:  # whatever it is: the other cases are worth having
        said = str(error).strip().splitlines()
        return case.failed(f"{type(error).__name__}: {said[0] if said else 'no reason given'}"[:300])
    return replace(result, name=case.name)


@contextmanager
def alarm(limit: float) -> Iterator[None]:
    """Ends the block with `OutOfTime` after so many seconds, where the system can (Unix, the main thread)."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
