"""The tasks by name: a folder with a `spec.py` is a task. Its code is imported when it is asked for, not before."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.core.errors import SaccadeError, did_you_mean

if TYPE_CHECKING:
    from saccade.tasks.base import TaskSpec

FOLDER = Path(__file__).parent


def task_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/spec.py")))


def find_task(name: str) -> TaskSpec[Any, Any]:
    """The task of this name. Raises: SaccadeError if there is none."""
    if name not in task_names():
        raise SaccadeError(
            f'there is no task "{name}"{did_you_mean(name, task_names())} (there are: {", ".join(task_names())})'
        )
    spec: TaskSpec[Any, Any] = import_module(f"saccade.tasks.{name}.spec").SPEC
    return spec


def task_of(system: str) -> TaskSpec[Any, Any]:
    """The task that a system is for. Raises: SaccadeError if there is no such system."""
    from saccade.models import entry

    return find_task(entry(system).task)


@cache
def eval_options() -> tuple[type, ...]:
    """What `saccade eval` may be asked of some tasks: a dataclass for each, found without importing PyTorch."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/options.py"))
    return tuple(import_module(f"saccade.tasks.{name}.options").EvalOptions for name in found)
