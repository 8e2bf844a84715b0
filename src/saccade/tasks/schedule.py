"""In which order several tasks are trained in one run (Multi-Task Learning of Hierarchical Vision-Language
Representation, Nguyen and Okatani, CVPR 2019).

`counts` are steps of each task in a cycle: C α_i, rounded.
"""

from __future__ import annotations

from collections.abc import Sequence


def periodic_schedule(tasks: Sequence[str], counts: Sequence[int], cycles: int) -> tuple[str, ...]:
    """Cycle after cycle, so many steps of each task in turn."""
    cycle = [task for task, count in zip(tasks, counts, strict=True) for _ in range(count)]
    return tuple(cycle * cycles)


def curriculum_schedule(tasks: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """One cycle of the first task, one of the first two, …, one of all."""
    stages = range(1, len(tasks) + 1)
    return tuple(task for stage in stages for task in periodic_schedule(tasks[:stage], counts[:stage], 1))
