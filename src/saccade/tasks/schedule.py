"""In which order several tasks are trained in one run (Multi-Task Learning of Hierarchical Vision-Language
Representation, Nguyen and Okatani, CVPR 2019).

`counts` are steps of each task in a cycle: C α_i, rounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


def periodic_schedule(tasks: Sequence[str], counts: Sequence[int], cycles: int) -> tuple[str, ...]:
    """Cycle after cycle, so many steps of each task in turn."""
    cycle = [task for task, count in zip(tasks, counts, strict=True) for _ in range(count)]
    return tuple(cycle * cycles)


def curriculum_schedule(tasks: Sequence[str], counts: Sequence[int], cycles: int = 1) -> tuple[str, ...]:
    """Some cycles of the first task, as many of the first two, …, of all."""
    stages = range(1, len(tasks) + 1)
    return tuple(task for stage in stages for task in periodic_schedule(tasks[:stage], counts[:stage], cycles))


@dataclass(frozen=True)
class Schedule:
    """`first` once, then `cycle` again and again: a function of the step alone, so that a resumed run goes on as it
    would have."""

    first: tuple[str, ...]
    cycle: tuple[str, ...]

    @cached_property
    def _places(self) -> dict[str, tuple[list[int], list[int]]]:
        """Where each task comes in `first`, and where in `cycle`."""
        parts = (self.first, self.cycle)
        return {
            task: tuple([n for n, other in enumerate(part) if other == task] for part in parts)  # type: ignore[misc]
            for task in dict.fromkeys(self.first + self.cycle)
        }

    def at(self, step: int) -> tuple[str, int]:
        """The task of a step, and how many steps it had before."""
        if step < len(self.first):
            task = self.first[step]
            return task, bisect_left(self._places[task][0], step)
        cycles, place = divmod(step - len(self.first), len(self.cycle))
        task = self.cycle[place]
        before, own = self._places[task]
        return task, len(before) + cycles * len(own) + bisect_left(own, place)
